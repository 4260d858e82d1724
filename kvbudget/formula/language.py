"""The closed expression language of formulas/: text -> a checked tree.

One tree answers four questions: its value over intervals, its unit, the names it uses, and the
text with numbers put in. Deny by default: `+ - * / // %`, unary minus, one comparison, a
one-level `a if c else b`, the functions below, names and numbers. Nothing else parses.
"""

from __future__ import annotations

import ast
import math
import operator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kvbudget.formula.dimension import NONE, Dimension, dimension_text, times
from kvbudget.formula.interval import (
    FormulaError,
    Interval,
    ceil_div,
    corners,
    divide,
    finite,
    hull,
    modulo,
    monotone,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kvbudget.units import Number

MAX_LENGTH: Final = 300
MAX_NODES: Final = 120
MAX_LITERAL: Final = 2**63

Value = Interval | list[Interval]
"""A number, or the column of a table (only `sum` and `largest` take one)."""

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_ARITY: dict[str, tuple[int, int]] = {
    "min": (2, 8), "max": (2, 8), "ceil": (1, 1), "floor": (1, 1), "ceil_div": (2, 2),
    "round": (1, 2),
}  # fmt: skip
_COLUMN = frozenset({"sum", "largest"})
RESERVED = frozenset(_ARITY) | _COLUMN


class Expr:
    """A parsed formula. Build with `parse`."""

    __slots__ = ("_root", "names", "text")

    def __init__(self, text: str, root: ast.expr, names: tuple[str, ...]) -> None:
        self.text, self._root, self.names = text, root, names

    def value(self, env: Mapping[str, Value]) -> Interval:
        """The result over intervals. Raises FormulaError (division by zero, unknown name)."""
        try:
            return finite(_value(self._root, env))
        except (OverflowError, ZeroDivisionError) as exc:
            raise FormulaError(f"{self.text}: {exc}") from exc

    def unit(self, env: Mapping[str, Dimension]) -> Dimension:
        """The unit of the result. Raises FormulaError where units do not fit."""
        found = _unit(self._root, env)
        return NONE if found is None else found

    def substituted(self, shown: Mapping[str, str]) -> str:
        """The text with `shown[name]` in place of each name."""
        spots = [
            n for n in ast.walk(self._root) if isinstance(n, ast.Name) and n.id not in RESERVED
        ]
        text = self.text
        for node in sorted(spots, key=lambda n: n.col_offset, reverse=True):
            text = text[: node.col_offset] + shown[node.id] + text[node.end_col_offset :]
        return text


@lru_cache(maxsize=4096)
def parse(text: str) -> Expr:
    """Raises FormulaError for anything outside the language."""
    source = " ".join(text.split())
    if not source or len(source) > MAX_LENGTH or not source.isascii():
        raise FormulaError(f"an expression has 1 to {MAX_LENGTH} ASCII characters: {source[:60]!r}")
    try:
        root = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise FormulaError(f"cannot read {source!r}: {exc}") from exc
    if sum(1 for _ in ast.walk(root)) > MAX_NODES:
        raise FormulaError(f"too long: {source[:60]!r}...", hint="split it into two steps")
    names = dict.fromkeys(_check(root, source, 0))
    return Expr(source, root, tuple(names))


def _check(node: ast.AST, source: str, ifs: int) -> Iterator[str]:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if not 0 <= value < MAX_LITERAL:
                raise FormulaError(f"literal out of range in {source!r}")
        case ast.Name(id=name):
            if name in RESERVED or name.startswith("_"):
                raise FormulaError(f"{name!r} cannot be a name in {source!r}")
            yield name
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield from _check(operand, source, ifs)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            yield from _check(left, source, ifs)
            yield from _check(right, source, ifs)
        case ast.IfExp(test=ast.Compare() as test, body=body, orelse=orelse) if ifs == 0:
            if len(test.ops) != 1 or type(test.ops[0]) not in _COMPARE:
                raise FormulaError(f"one plain comparison only in {source!r}")
            for branch in (test.left, test.comparators[0], body, orelse):
                yield from _check(branch, source, 1)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in RESERVED:
            yield from _check_call(name, args, source, ifs)
        case _:
            part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise FormulaError(
                f"not allowed in a formula: {part!r} (in {source!r})",
                hint="allowed: + - * / // %, a if c else b, " + " ".join(sorted(RESERVED)),
            )


def _check_call(name: str, args: list[ast.expr], source: str, ifs: int) -> Iterator[str]:
    if name in _COLUMN:
        if len(args) != 1 or not isinstance(args[0], ast.Name):
            raise FormulaError(f"{name}() takes the name of one column in {source!r}")
        yield from _check(args[0], source, ifs)
        return
    least, most = _ARITY[name]
    if not least <= len(args) <= most:
        raise FormulaError(f"{name}() takes {least} to {most} arguments in {source!r}")
    if name == "round" and len(args) == 2 and not _is_digits(args[1]):
        raise FormulaError(f"round() takes a literal number of digits in {source!r}")
    for arg in args:
        yield from _check(arg, source, ifs)


def _is_digits(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value <= 15


def _value(node: ast.expr, env: Mapping[str, Value]) -> Interval:
    match node:
        case ast.Constant(value=int() | float() as value):
            return Interval.exact(value)
        case ast.Name(id=name):
            return _scalar(name, env)
        case ast.UnaryOp(operand=operand):
            inner = _value(operand, env)
            return Interval(-inner.high, -inner.best, -inner.low)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, env), _value(right, env)
            if isinstance(op, ast.Mod):
                return modulo(a, b)
            work = divide if isinstance(op, ast.Div | ast.FloorDiv) else corners
            return work(_BINARY[type(op)], a, b)
        case ast.IfExp(test=ast.Compare() as test, body=body, orelse=orelse):
            certain, holds = _decide(test, env)
            if certain:
                return _value(body if holds else orelse, env)
            best, other = (body, orelse) if holds else (orelse, body)
            return hull(_value(best, env), _value(other, env))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call(name, args, env)
    raise FormulaError(f"not evaluable: {ast.unparse(node)}")


def _scalar(name: str, env: Mapping[str, Value]) -> Interval:
    found = env.get(name)
    if found is None:
        raise FormulaError(f"unknown name {name!r}")
    if isinstance(found, list):
        raise FormulaError(f"{name!r} is a column: take sum() or largest() of it")
    return found


def _decide(test: ast.Compare, env: Mapping[str, Value]) -> tuple[bool, bool]:
    """(certain, holds at the best values)."""
    a, b = _value(test.left, env), _value(test.comparators[0], env)
    compare = _COMPARE[type(test.ops[0])]
    holds = compare(a.best, b.best)
    if a.is_exact and b.is_exact:
        return True, holds
    if isinstance(test.ops[0], ast.Eq | ast.NotEq):
        return a.high < b.low or b.high < a.low, holds
    outcomes = {compare(x, y) for x in (a.low, a.high) for y in (b.low, b.high)}
    return len(outcomes) == 1, holds


def _call(name: str, args: list[ast.expr], env: Mapping[str, Value]) -> Interval:
    if name in _COLUMN:
        assert isinstance(args[0], ast.Name)
        column = env.get(args[0].id)
        if not isinstance(column, list):
            raise FormulaError(f"{name}({args[0].id}): not a column of a table")
        if name == "largest" and not column:
            raise FormulaError(f"largest({args[0].id}): the table is empty")
        join = sum if name == "sum" else max
        return Interval(
            join(x.low for x in column), join(x.best for x in column), join(x.high for x in column)
        )
    values = [_value(arg, env) for arg in args]
    match name:
        case "min" | "max":
            pick = min if name == "min" else max
            return Interval(
                pick(v.low for v in values),
                pick(v.best for v in values),
                pick(v.high for v in values),
            )
        case "ceil":
            return monotone(math.ceil, values[0])
        case "floor":
            return monotone(math.floor, values[0])
        case "ceil_div":
            return divide(ceil_div, values[0], values[1])
        case _:
            digits = int(values[1].best) if len(values) == 2 else None
            return monotone(lambda x: round(x, digits), values[0])


def _unit(node: ast.expr, env: Mapping[str, Dimension]) -> Dimension | None:
    """None: the literal 0, which fits any unit."""
    match node:
        case ast.Constant(value=value):
            return None if value == 0 else NONE
        case ast.Name(id=name):
            if name not in env:
                raise FormulaError(f"unknown name {name!r}")
            return env[name]
        case ast.UnaryOp(operand=operand):
            return _unit(operand, env)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _unit(left, env), _unit(right, env)
            if isinstance(op, ast.Mult):
                return times(a or NONE, b or NONE)
            if isinstance(op, ast.Div | ast.FloorDiv):
                return times(a or NONE, b or NONE, -1)
            return _same((a, b), node)
        case ast.IfExp(test=ast.Compare() as test, body=body, orelse=orelse):
            _same((_unit(test.left, env), _unit(test.comparators[0], env)), test)
            return _same((_unit(body, env), _unit(orelse, env)), node)
        case ast.Call(func=ast.Name(id=name), args=args):
            units = [_unit(arg, env) for arg in args]
            if name in ("min", "max"):
                return _same(tuple(units), node)
            if name == "ceil_div":
                return times(units[0] or NONE, units[1] or NONE, -1)
            return units[0]
    raise FormulaError(f"no unit: {ast.unparse(node)}")


def _same(units: tuple[Dimension | None, ...], node: ast.expr) -> Dimension | None:
    known = {unit for unit in units if unit is not None}
    if len(known) > 1:
        shown = " and ".join(dimension_text(unit) for unit in sorted(known))
        raise FormulaError(f"units do not fit: {shown} in {ast.unparse(node)!r}")
    return known.pop() if known else None
