"""TOML files as trees with lines: engine settings, and commands of task runners."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from kvbudget.gate.nodes import Malformed, Node
from kvbudget.gate.source import Text, align

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?\Z")
_KEY = re.compile(
    r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)
_PART = re.compile(r"[\w-]+|\"[^\"]*\"|'[^']*'")


def read(context: Context) -> None:
    """A TOML file. Raises Malformed with the line."""
    text = context.text
    try:
        values = tomllib.loads(text.s)
    except tomllib.TOMLDecodeError as exc:
        if "{{" in text.s or "{%" in text.s:  # a template
            return
        at = re.search(r"\(at line (\d+)", str(exc))
        raise Malformed("TOML", int(at.group(1)) if at else 1, str(exc)) from None
    except RecursionError:
        raise Malformed("TOML", 1, "nested too deeply") from None
    context.read([_node(values, (), _places(text), text)])


def _places(text: Text) -> dict[tuple[str, ...], Text]:
    """Key with its tables -> the text from its line to the next key or table."""
    out: dict[tuple[str, ...], Text] = {}
    table: tuple[str, ...] = ()
    counts: dict[tuple[str, ...], int] = {}
    held: list[Text] = []
    name: tuple[str, ...] | None = None
    for row in [*text.split_lines(), Text("[end]", [])]:
        header, key = _HEADER.match(row.s), _KEY.match(row.s)
        if header is None and key is None:
            held.append(row)
            continue
        if name is not None:
            out.setdefault(name, Text.join(held, "\n"))
        held, name = [row], None
        if header is not None:
            table = _table(_parts(header), counts, header.group().lstrip().startswith("[["))
        elif key is not None:
            name = (*table, *_parts(key))
    return out


def _parts(match: re.Match[str]) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(match[1]))


def _table(
    parts: tuple[str, ...], counts: dict[tuple[str, ...], int], repeated: bool
) -> tuple[str, ...]:
    """Path of a table; elements of an array of tables carry their number."""
    path: tuple[str, ...] = ()
    for index, part in enumerate(parts):
        path = (*path, part)
        if repeated and index == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, f"#{counts[path]}")
    return path


def _node(
    value: Any,  # noqa: ANN401 - TOML
    path: tuple[str, ...],
    places: dict[tuple[str, ...], Text],
    near: Text,
) -> Node:
    """A value with the lines of its key; what no line of its own spells stands on its table's."""
    near = places.get(path, near)
    line = near.line or 1
    if isinstance(value, dict):
        items = [
            (
                Text.on(key, (places.get((*path, key)) or near).line or 1),
                _node(item, (*path, key), places, near),
            )
            for key, item in value.items()
        ]
        return Node.mapping(items, items[0][0].line if items else line)
    if isinstance(value, list):
        return Node.sequence(
            [
                _node(item, (*path, f"#{at}") if isinstance(item, dict) else path, places, near)
                for at, item in enumerate(value)
            ],
            line,
        )
    said = str(value).lower() if isinstance(value, bool) else str(value)
    at = near.s.find(said) if said and "\n" not in said else -1
    text = near.cut(at, at + len(said)) if at >= 0 else align(said, near.s, near.lines)
    return Node.scalar(text, text.line or line, plain=not isinstance(value, str))
