"""Static values of Python: constants, defaults, dicts and lists that know their lines."""

from __future__ import annotations

import ast
import json
import operator
import re
from typing import TYPE_CHECKING, Any

from kvbudget.gate.knowledge import engine_names
from kvbudget.gate.readers.variables import split_string
from kvbudget.gate.source import HOLE, Text, align

if TYPE_CHECKING:
    from kvbudget.gate.draft import Draft


_ENVIRON = ("os.getenv", "os.environ.get", "environ.get", "getenv")
_MAPPINGS = ("os.environ", "environ")
_PERCENT = re.compile(r"%%|%[-+ #0-9.]*[a-zA-Z]")
_FIELD = re.compile(r"\{(\w*)(?:![rsa])?(?::[^{}]*)?\}")
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}


class Unknown:
    """A value that is not known statically."""


UNKNOWN = Unknown()


class Map:
    """A dict whose keys know their lines."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[Any, int]] = {}

    def put(self, key: str, value: Any, line: int) -> None:  # noqa: ANN401
        self.items.pop(key, None)
        self.items[key] = (value, line)

    def update(self, other: Map) -> None:
        for key, (value, line) in other.items.items():
            self.put(key, value, line)


class Items:
    """A list whose elements know their lines; it may be an engine's argv."""

    def __init__(self, items: list[tuple[Any, int]]) -> None:
        self.items = items
        self.draft: Draft | None = None
        self.start = 0


class Values:
    """Names in scope and what expressions are worth, as far as the file tells."""

    def __init__(self, text: Text, rows: list[int]) -> None:
        """`rows`: physical line of each line of the text."""
        self.text, self.rows = text, rows
        self.scopes: list[dict[str, Any]] = [{}]
        self.imports: dict[str, str] = {}
        self.env: dict[str, Text] = {}
        self.sequences: dict[int, Items] = {}
        self.classes: dict[str, Map] = {}
        self.returns: dict[str, Any] = {}
        self.owners: list[dict[str, Any]] = []
        """Scopes of the classes around, the innermost last: what `self.x` is."""

    def line(self, node: ast.AST) -> int:
        row = getattr(node, "lineno", 1) - 1
        return self.rows[min(row, len(self.rows) - 1)]

    def _lookup(self, name: str) -> Any:  # noqa: ANN401 - any value
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return UNKNOWN

    def value(self, node: ast.AST) -> Any:  # noqa: ANN401 - any value
        """Static value; UNKNOWN where there is none."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._lookup(node.id)
        if isinstance(node, ast.Dict):
            return self._dict(node)
        if isinstance(node, (ast.List, ast.Tuple)):
            return self._sequence(node)
        if isinstance(node, ast.JoinedStr):
            parts = [
                str(part.value)
                if isinstance(part, ast.Constant)
                else as_string(self.value(getattr(part, "value", part)))
                for part in node.values
            ]
            return "".join(parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            item = self.value(node.operand)
            return -item if isinstance(item, (int, float)) else UNKNOWN
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call):
            return self._call_value(node)
        if isinstance(node, ast.Subscript):
            owner, key = self.value(node.value), self.value(node.slice)
            if dotted(node.value) in _MAPPINGS and isinstance(key, str):
                said = self.env.get(key)
                return said.s if said is not None and said.known else UNKNOWN
            if isinstance(owner, Map) and isinstance(key, str):
                return owner.items.get(key, (UNKNOWN, 0))[0]
            return UNKNOWN
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.NamedExpr):
            return self.value(node.value)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return self._either(node)
        return UNKNOWN

    def origin(self, node: ast.expr) -> str:
        """Dotted name of a function as its module calls it: `sp.run` -> `subprocess.run`."""
        name = dotted(node)
        root, dot, rest = name.partition(".")
        return self.imports.get(root, root) + dot + rest

    def said(self, node: ast.expr, value: str) -> Text:
        """`value` on the lines on which a literal spells it; what a name stands for is at its use."""
        parts = [node]
        while isinstance(parts[0], ast.BinOp):
            parts[0:1] = [parts[0].left, parts[0].right]
        if not all(isinstance(part, (ast.Constant, ast.JoinedStr)) for part in parts):
            return Text.on(value, self.line(node))
        start = self._offset(node.lineno)
        raw = self.text.cut(start, self._offset((node.end_lineno or node.lineno) + 1))
        return align(value, raw.s, raw.lines)

    def _offset(self, row: int) -> int:
        """Where a line of the text begins (its end for a line behind the last)."""
        at = 0
        for _ in range(row - 1):
            at = self.text.s.find("\n", at) + 1
            if not at:
                return len(self.text.s)
        return at

    def _attribute(self, node: ast.Attribute) -> Any:  # noqa: ANN401 - any value
        name = dotted(node)
        if name == "sys.executable":
            return "python"
        found = self._lookup(name)
        if found is UNKNOWN and name.startswith(("self.", "cls.")) and self.owners:
            owner, attribute = self.owners[-1], name.split(".", 1)[1]
            return owner.get(f"self.{attribute}", owner.get(attribute, UNKNOWN))
        if found is UNKNOWN:
            held = self.value(node.value)
            if isinstance(held, Map):
                return held.items.get(node.attr, (UNKNOWN, 0))[0]
        return found

    def _instance(self, node: ast.Call, fields: Map) -> Map:
        """What a class of plain fields holds: its defaults under the call's arguments."""
        out = Map()
        out.update(fields)
        for name, item in zip(fields.items, node.args, strict=False):
            out.put(name, self.value(item), self.line(item))
        self._keywords(node, out)
        return out

    def _binary(self, node: ast.BinOp) -> Any:  # noqa: ANN401 - any value
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, Map) and isinstance(right, Map) and isinstance(node.op, ast.BitOr):
            out = Map()
            out.update(left)
            out.update(right)
            return out
        if isinstance(left, Items) and isinstance(right, Items) and isinstance(node.op, ast.Add):
            return Items([*left.items, *right.items])
        if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
            return (left + right)[:4096]
        if isinstance(left, str) and isinstance(node.op, ast.Mod):
            given = [item for item, _ in right.items] if isinstance(right, Items) else [right]
            shown = iter([as_string(item) for item in given])
            return _PERCENT.sub(lambda m: "%" if m.group() == "%%" else next(shown, HOLE), left)
        work = _ARITHMETIC.get(type(node.op))
        if work is None or not all(isinstance(item, (int, float)) for item in (left, right)):
            return UNKNOWN
        if isinstance(node.op, (ast.Pow, ast.LShift)) and not (
            abs(left) <= 1024 and 0 <= right < 64
        ):
            return UNKNOWN
        try:
            return work(left, right)
        except (ArithmeticError, ValueError, TypeError):
            return UNKNOWN

    def _either(self, node: ast.BoolOp) -> Any:  # noqa: ANN401 - any value
        """`os.getenv("X") or 0.9`: what a variable is that nobody set."""
        for item in node.values:
            unset = isinstance(item, ast.Call) and len(item.args) == 1
            if unset and isinstance(item, ast.Call) and self.origin(item.func) in _ENVIRON:
                continue
            value = self.value(item)
            if isinstance(value, Unknown) or value:
                return value
        return UNKNOWN

    def _dict(self, node: ast.Dict) -> Map:
        out = Map()
        for key, item in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.value(item)
                if isinstance(inner, Map):
                    out.update(inner)
                continue
            name = self.value(key)
            if isinstance(name, str):
                out.put(name, self.value(item), self.line(key))
        return out

    def _sequence(self, node: ast.List | ast.Tuple) -> Items:
        known = self.sequences.get(id(node))
        if known is not None:
            return known
        items: list[tuple[Any, int]] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                inner = self.value(item.value)
                if isinstance(inner, Items):
                    items.extend(inner.items)
                else:
                    items.append((UNKNOWN, self.line(item)))
            else:
                items.append((self.value(item), self.line(item)))
        made = self.sequences[id(node)] = Items(items)
        return made

    def _call_value(self, node: ast.Call) -> Any:  # noqa: ANN401 - any value
        name = self.origin(node.func)
        first = self.value(node.args[0]) if node.args else UNKNOWN
        if name.removeprefix(".") in self.classes:
            return self._instance(node, self.classes[name.removeprefix(".")])
        if not node.args and not node.keywords:
            own = name.removeprefix(".").removeprefix("self.").removeprefix("cls.")
            if own in self.returns:
                return self.returns[own]
        if name.rsplit(".", 1)[-1] in ("field", "Field"):
            default = next((word.value for word in node.keywords if word.arg == "default"), None)
            return self.value(default) if default is not None else first
        if name.endswith("types.DeviceRequest"):
            out = Map()
            self._keywords(node, out)
            return out
        if name in ("vars", "dataclasses.asdict") and isinstance(first, Map):
            return first
        if name in _ENVIRON and node.args:
            if isinstance(first, str) and first in self.env and self.env[first].known:
                return self.env[first].s
            return self.value(node.args[1]) if len(node.args) > 1 else UNKNOWN
        if name == "os.environ.setdefault" and len(node.args) == 2:
            return self.value(node.args[1])
        if name == "dict":
            out = Map()
            if isinstance(first, Map):
                out.update(first)
            self._keywords(node, out)
            return out
        if name in ("int", "float", "str", "bool") and len(node.args) == 1:
            return _convert(name, first)
        if name == "json.dumps" and node.args:
            plain = as_plain(first)
            if HOLE in str(plain):
                return UNKNOWN
            try:
                return json.dumps(plain)
            except (TypeError, ValueError):
                return UNKNOWN
        if name.rsplit(".", 1)[-1].endswith("Config") and self._from_engine(name):
            return self._config(node)
        if name.endswith("Config.from_cli") and isinstance(first, str):
            return first
        if name in ("list", "tuple"):
            return first if isinstance(first, Items) else UNKNOWN
        if name == "Path" or name.endswith(".Path"):
            return first
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            return self._formatted(node, self.value(node.func.value))
        if name == "shlex.split" and isinstance(first, str):
            return self._split(node, split_string(self.said(node.args[0], first)))
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func, first)
        return UNKNOWN

    def _method(self, node: ast.Call, func: ast.Attribute, first: object) -> Any:  # noqa: ANN401
        """`text.split()`, `" ".join(parts)` and the fields of an object."""
        owner = self.value(func.value)
        if func.attr in ("model_dump", "dict") and isinstance(owner, Map):
            return owner
        if not isinstance(owner, str):
            return UNKNOWN
        if func.attr == "split" and not node.args:
            said = self.said(func.value, owner)
            words = [said.cut(m.start(), m.end()) for m in re.finditer(r"\S+", said.s)]
            return self._split(node, words)
        if func.attr == "join" and isinstance(first, Items) and first.draft is None:
            return owner.join(as_string(item) for item, _ in first.items)
        return UNKNOWN

    def _split(self, node: ast.Call, words: list[Text]) -> Items:
        items = Items([(word.s, word.line) for word in words])
        return self.sequences.setdefault(id(node), items)

    def _formatted(self, node: ast.Call, text: object) -> Any:  # noqa: ANN401 - any value
        """`"... {} {name}".format(a, name=b)`."""
        if not isinstance(text, str):
            return UNKNOWN
        named = {word.arg: self.value(word.value) for word in node.keywords}
        given = [self.value(item) for item in node.args]
        count = iter(range(len(given)))

        def field(match: re.Match[str]) -> str:
            key = match.group(1)
            if not key:
                at = next(count, len(given))
            elif key.isdigit():
                at = int(key[:6])
            else:
                return as_string(named.get(key, UNKNOWN))
            return as_string(given[at]) if at < len(given) else HOLE

        return _FIELD.sub(field, text)

    def _from_engine(self, name: str) -> bool:
        origin = self.imports.get(name.split(".")[0], name)
        return origin.split(".")[0] in engine_names()

    def _config(self, node: ast.Call) -> Any:  # noqa: ANN401 - any value
        """`KVTransferConfig(kv_role=...)`: the map its keywords spell."""
        if node.args or any(keyword.arg is None for keyword in node.keywords):
            return UNKNOWN
        out = Map()
        self._keywords(node, out)
        return out

    def _keywords(self, node: ast.Call, out: Map) -> None:
        for keyword in node.keywords:
            if keyword.arg is None:
                inner = self.value(keyword.value)
                if isinstance(inner, Map):
                    for key, (item, _line) in inner.items.items():
                        out.put(key, item, inner.items[key][1])
                continue
            out.put(keyword.arg, self.value(keyword.value), self.line(keyword))


def dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def as_string(value: object) -> str:
    if isinstance(value, (Unknown, Map, Items)):
        return HOLE
    return str(value)


def as_plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Unknown):
        return HOLE
    if isinstance(value, Map):
        return {key: as_plain(item) for key, (item, _) in value.items.items()}
    if isinstance(value, Items):
        return [as_plain(item) for item, _ in value.items]
    return value


def _convert(name: str, value: object) -> Any:  # noqa: ANN401
    if isinstance(value, (Unknown, Map, Items)) or (isinstance(value, str) and HOLE in value):
        return UNKNOWN
    try:
        return {"int": int, "float": float, "str": str, "bool": bool}[name](value)
    except (ValueError, TypeError):
        return UNKNOWN
