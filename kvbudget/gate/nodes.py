"""YAML and JSON as trees that know the line of every key and of every character of a value."""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING, Any

import yaml

from kvbudget.gate.source import Text, align

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 120
MAX_VISITS = 200_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?\d[\d_]*\Z")
_FLOAT = re.compile(r"[-+]?(\d[\d_]*\.\d*|\.\d+|\d[\d_]*)([eE][-+]?\d+)?\Z")


class Malformed(Exception):
    """A file that is not what its name says."""

    def __init__(self, language: str, line: int, detail: str) -> None:
        super().__init__(detail)
        self.language, self.line, self.detail = language, line, detail


class Node:
    """A map, list or scalar. `text` is set for scalars only."""

    __slots__ = ("_items", "_raw", "kind", "line", "plain")

    def __init__(self, kind: str, line: int) -> None:
        self.kind = kind
        self.line = line
        self.plain = True
        self._items: Any = None
        self._raw: Text | None = None

    # ---- building ----
    @classmethod
    def scalar(cls, text: Text, line: int, *, plain: bool = True) -> Node:
        node = cls("scalar", line)
        node._raw, node.plain = text, plain
        return node

    @classmethod
    def mapping(cls, items: list[tuple[Text, Node]], line: int) -> Node:
        node = cls("map", line)
        node._items = items
        return node

    @classmethod
    def sequence(cls, items: list[Node], line: int) -> Node:
        node = cls("list", line)
        node._items = items
        return node

    # ---- reading ----
    @property
    def is_map(self) -> bool:
        return self.kind == "map"

    @property
    def is_list(self) -> bool:
        return self.kind == "list"

    @property
    def is_scalar(self) -> bool:
        return self.kind == "scalar"

    @property
    def text(self) -> Text:
        """The scalar as text (empty for maps, lists and null)."""
        if self._raw is None or (self.plain and self._raw.s in ("null", "~", "Null", "NULL")):
            return Text("", [])
        return self._raw

    @property
    def s(self) -> str:
        """The scalar as a string."""
        return self.text.s

    def items(self) -> list[tuple[Text, Node]]:
        """Entries of a map (merge keys resolved, later duplicates win)."""
        return self._items if self.kind == "map" else []

    def elements(self) -> list[Node]:
        """Elements of a list."""
        return self._items if self.kind == "list" else []

    def pairs(self) -> Iterator[tuple[str, int, Node]]:
        """(key, line of the key, value) of a map."""
        for key, value in self.items():
            yield key.s, key.line, value

    def get(self, *path: str) -> Node:
        """Descend by keys; an empty node where one is missing."""
        node = self
        for key in path:
            node = next((value for name, value in node.items() if name.s == key), EMPTY)
        return node

    def key_line(self, key: str) -> int:
        """Line of a key of this map, 0 if absent."""
        return next((name.line for name, _ in self.items() if name.s == key), 0)

    def has(self, key: str) -> bool:
        return any(name.s == key for name, _ in self.items())

    def names(self) -> list[str]:
        return [name.s for name, _ in self.items()]

    @property
    def present(self) -> bool:
        return self is not EMPTY and not (self.is_scalar and self._raw is None)

    def value(self, budget: list[int] | None = None) -> Any:  # noqa: ANN401 - YAML value
        """Plain Python; quoted scalars stay strings, unknown parts stay HOLE."""
        budget = budget if budget is not None else [20_000]
        budget[0] -= 1
        if budget[0] < 0:
            raise Malformed("YAML", self.line, "expands to too many nodes")
        if self.kind == "map":
            return {key.s: item.value(budget) for key, item in self.items()}
        if self.kind == "list":
            return [item.value(budget) for item in self.elements()]
        if self._raw is None:
            return None
        return scalar_value(self._raw.s) if self.plain else self._raw.s

    def walk(self, depth: int = 0, budget: list[int] | None = None) -> Iterator[Node]:
        """This node and all below it, in order; bounded, so that aliases cannot explode."""
        budget = budget if budget is not None else [MAX_VISITS]
        budget[0] -= 1
        if budget[0] < 0 or depth > MAX_DEPTH:
            raise Malformed("YAML", self.line, "aliases expand to too many nodes")
        yield self
        children = [v for _, v in self.items()] if self.kind == "map" else self.elements()
        for child in children:
            if child.kind != "scalar":
                yield from child.walk(depth + 1, budget)


EMPTY = Node("scalar", 0)


def scalar_value(text: str) -> Any:  # noqa: ANN401 - YAML scalar
    """A plain scalar as YAML 1.2 types it."""
    if text in ("", "null", "~", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if len(text) > 300:  # no number that anybody means
        return text
    if _INT.match(text):
        return int(text.replace("_", ""))
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return text


class _Converter:
    def __init__(self, text: Text) -> None:
        self.text = text
        self.done: dict[int, Node] = {}
        self.open: set[int] = set()
        self.kept: list[yaml.Node] = []

    def line(self, mark: Any) -> int:  # noqa: ANN401 - yaml mark
        lines = self.text.lines
        if not lines:
            return 1
        index: int = mark.index
        return lines[min(index, len(lines) - 1)]

    def node(self, source: yaml.Node, depth: int = 0) -> Node:
        if depth > MAX_DEPTH:
            raise Malformed("YAML", self.line(source.start_mark), "nested too deeply")
        known = self.done.get(id(source))
        if known is not None:
            return known
        if id(source) in self.open:
            raise Malformed("YAML", self.line(source.start_mark), "an alias contains itself")
        self.open.add(id(source))
        made = self._make(source, depth)
        self.open.discard(id(source))
        self.done[id(source)] = made
        self.kept.append(source)  # an id is only unique while its object lives
        return made

    def _make(self, source: yaml.Node, depth: int) -> Node:
        line = self.line(source.start_mark)
        if isinstance(source, yaml.ScalarNode):
            return self._scalar(source, line)
        if isinstance(source, yaml.SequenceNode):
            return Node.sequence([self.node(item, depth + 1) for item in source.value], line)
        own: dict[str, tuple[Text, Node]] = {}
        merged: dict[str, tuple[Text, Node]] = {}
        for key, value in source.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            name = self._scalar(key, self.line(key.start_mark)).text
            if key.tag == "tag:yaml.org,2002:merge" or name.s == "<<":
                for part in self._merge_sources(value, depth):
                    for entry in part.items():
                        merged.setdefault(entry[0].s, entry)
                continue
            own[name.s] = (name, self.node(value, depth + 1))
        items = [entry for key, entry in merged.items() if key not in own]
        return Node.mapping([*items, *own.values()], line)

    def _merge_sources(self, value: yaml.Node, depth: int) -> list[Node]:
        if isinstance(value, yaml.MappingNode):
            return [self.node(value, depth + 1)]
        if isinstance(value, yaml.SequenceNode):
            return [
                self.node(item, depth + 1)
                for item in value.value
                if isinstance(item, yaml.MappingNode)
            ]
        return []

    def _scalar(self, source: yaml.ScalarNode, line: int) -> Node:
        style = source.style
        start, end = source.start_mark.index, source.end_mark.index
        value = source.value
        if style in ("|", ">"):
            newline = self.text.s.find("\n", start)
            start = newline + 1 if newline >= 0 else start
        if style in (None, "") and value == "":
            return Node("scalar", line)
        raw_lines = self.text.lines[start:end]
        if not style and value == self.text.s[start:end]:
            text = Text(value, raw_lines)
        else:
            text = align(value, self.text.s[start:end], raw_lines)
        return Node.scalar(text, line, plain=not style)


def _expanded(node: Node, sizes: dict[int, int]) -> int:
    """Nodes below and with `node` once aliases are copied out. Raises Malformed for a bomb."""
    if node.kind == "scalar":
        return 1
    size = sizes.get(id(node))
    if size is None:
        below = [value for _, value in node.items()] if node.is_map else node.elements()
        size = sizes[id(node)] = 1 + sum(_expanded(item, sizes) for item in below)
        if size > MAX_VISITS:
            raise Malformed("YAML", node.line, "aliases expand to too many nodes")
    return size


def documents(text: Text) -> list[Node]:
    """All documents of a YAML (or JSON) text. Raises Malformed with the line."""
    loader = _LOADER(text.s)
    converter = _Converter(text)
    out: list[Node] = []
    try:
        while loader.check_node():
            source = loader.get_node()
            if source is not None:
                out.append(converter.node(source))
                _expanded(out[-1], {})
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
        line = 1
        if mark is not None and text.lines:
            starts = _line_starts(text.s)
            row = min(mark.line, len(starts) - 1)
            line = text.lines[min(starts[row], len(text.lines) - 1)]
        raise Malformed("YAML", line, str(getattr(exc, "problem", None) or exc)) from None
    except RecursionError:
        raise Malformed("YAML", 1, "nested too deeply") from None
    except ValueError as exc:
        raise Malformed("YAML", 1, str(exc)) from None
    finally:
        loader.dispose()
    return out


def _line_starts(s: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", s))]


_COMMENT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|//[^\n]*|/\*.*?\*/", re.S)


def _blank(match: re.Match[str]) -> str | None:
    """Blanks for a comment (its line breaks stay), None for a string."""
    return None if match.group().startswith('"') else re.sub(r"[^\n]", " ", match.group())


def json_document(text: Text) -> Node:
    """One JSON document with lines. Raises Malformed."""
    import json

    try:
        json.loads(text.s)
    except json.JSONDecodeError as exc:
        plain = text.sub(_COMMENT, _blank)  # editors' files: JSON with comments
        if plain is not text:
            return json_document(plain)
        starts = _line_starts(text.s)
        row = bisect.bisect_right(starts, exc.pos) - 1
        line = text.lines[min(starts[row], len(text.lines) - 1)] if text.lines else 1
        raise Malformed("JSON", line, exc.msg) from None
    except RecursionError:
        raise Malformed("JSON", 1, "nested too deeply") from None
    try:
        docs = documents(text)
    except Malformed as exc:
        raise Malformed("JSON", exc.line, exc.detail) from None
    return docs[0] if docs else EMPTY


def merged(base: Node, over: Node) -> Node:
    """`over` laid on `base`: maps are joined key by key, everything else is replaced."""
    if not base.is_map or not over.is_map:
        return over
    items = {key.s: (key, value) for key, value in base.items()}
    for key, value in over.items():
        old = items.get(key.s)
        items[key.s] = (key, merged(old[1], value) if old else value)
    return Node.mapping(list(items.values()), over.line)


def words_of(node: Node) -> list[Text]:
    """A list of words of a manifest (numbers and booleans become words too)."""
    return [item._raw for item in node.elements() if item.is_scalar and item._raw is not None]
