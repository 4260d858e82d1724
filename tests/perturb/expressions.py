"""Every one-step change of an expression of formulas/: a number, an operator, a function."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mult),
    ast.Mod: (ast.FloorDiv, ast.Mult),
}
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "min": ("max",),
    "max": ("min",),
    "ceil": ("floor",),
    "floor": ("ceil",),
    "round": ("floor", "ceil"),
    "sum": ("largest",),
    "largest": ("sum",),
}


def other_numbers(value: float) -> list[float]:
    """Two neighbours of a number: a small step and the double (zero has one neighbour)."""
    if isinstance(value, int):
        return [1] if value == 0 else list(dict.fromkeys([value + 1, value * 2]))
    return [0.01] if value == 0 else [round(value * 1.01, 12), value * 2]


def variants(text: str) -> Iterator[tuple[str, str]]:
    """(what was changed, the changed expression), one change each, in a fixed order."""
    tree = ast.parse(" ".join(text.split()), mode="eval")
    for place, node in enumerate(ast.walk(tree)):
        for label, change in _changes(node):
            other = copy.deepcopy(tree)
            spot = next(n for i, n in enumerate(ast.walk(other)) if i == place)
            for name, value in change.items():
                setattr(spot, name, value)
            yield f"{place} {label}", ast.unparse(other)


def _changes(node: ast.AST) -> Iterator[tuple[str, dict[str, object]]]:
    match node:
        case ast.Constant(value=int() | float() as value):
            for number in other_numbers(value):
                yield f"{value} -> {number}", {"value": number}
        case ast.BinOp(op=op):
            for kind in OPERATORS[type(op)]:
                yield f"{_name(op)} -> {kind.__name__}", {"op": kind()}
        case ast.Compare(ops=[op]):
            for comparison in COMPARISONS[type(op)]:
                yield f"{_name(op)} -> {comparison.__name__}", {"ops": [comparison()]}
        case ast.Call(func=ast.Name(id="ceil_div"), args=[left, right]):
            # a call cannot become an operation in place: floor(a / b) says the same as a // b
            whole = ast.BinOp(left, ast.FloorDiv(), right)
            yield "ceil_div -> //", {"func": ast.Name("floor"), "args": [whole]}
        case ast.Call(func=ast.Name(id=name), args=args):
            for function in FUNCTIONS[name]:
                changed = args[:1] if name == "round" else args
                yield f"{name} -> {function}", {"func": ast.Name(function), "args": changed}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "minus dropped", {"operand": ast.UnaryOp(ast.USub(), operand)}
        case ast.IfExp(body=body, orelse=orelse):
            yield "branches swapped", {"body": orelse, "orelse": body}


def _name(op: ast.AST) -> str:
    return type(op).__name__
