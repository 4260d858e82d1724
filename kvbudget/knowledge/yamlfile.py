"""One YAML file, read strictly: no octal, sexagesimal or yes/no surprises, no duplicate keys."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO

import yaml

from kvbudget.errors import KnowledgeError

if TYPE_CHECKING:
    from pathlib import Path

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class StrictLoader(_Base):  # type: ignore[misc]
    """YAML 1.2 scalars: only true/false are booleans, only plain decimals are numbers."""


StrictLoader.yaml_implicit_resolvers = {
    first: [
        (tag, regexp) for tag, regexp in resolvers if tag.rsplit(":", 1)[1] in ("null", "merge")
    ]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(?:true|false)\Z"), list("tf")
)
StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), list("-+0123456789")
)
StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)\Z"),
    list("-+0123456789"),
)


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:  # noqa: ANN401 - yaml's own types
    lines: dict[Any, int] = {}
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if key in lines:
            raise yaml.MarkedYAMLError(
                problem=f"key {key!r} stands twice (first on line {lines[key]})",
                problem_mark=key_node.start_mark,
            )
        lines[key] = line
    loader.flatten_mapping(node)
    return {
        loader.construct_object(k, deep=True): loader.construct_object(v, deep=True)
        for k, v in node.value
    }


StrictLoader.add_constructor("tag:yaml.org,2002:map", _mapping)


MAX_NODES = 200_000
"""Nodes a file may expand to. The largest of ours has a fifth; a few aliases can mean billions."""


def _expanded(node: Any, sizes: dict[int, int]) -> int:  # noqa: ANN401 - yaml's own types
    """How many nodes `node` stands for once its aliases are copied out."""
    known = sizes.get(id(node))
    if known is not None:
        return known
    sizes[id(node)] = MAX_NODES + 1  # found again below itself: without end
    below = node.value if isinstance(node, yaml.CollectionNode) else ()
    parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
    size = 1 + sum(_expanded(part, sizes) for part in parts)
    if size > MAX_NODES:
        raise yaml.MarkedYAMLError(
            problem=f"expands to more than {MAX_NODES:,} nodes", problem_mark=node.start_mark
        )
    sizes[id(node)] = size
    return size


def _parse(stream: BinaryIO) -> Any:  # noqa: ANN401 - any YAML value
    loader = StrictLoader(stream)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _expanded(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


@lru_cache(maxsize=64)
def load_yaml(path: Path) -> Any:  # noqa: ANN401 - any YAML value
    """The parsed file, once per process. Raises KnowledgeError with its position."""
    try:
        with path.open("rb") as stream:
            return _parse(stream)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        raise KnowledgeError(
            exc.problem or "not YAML",
            file=str(path),
            line=mark.line + 1 if mark else None,
            col=mark.column + 1 if mark else None,
        ) from exc
    except RecursionError as exc:
        raise KnowledgeError("nested too deeply", file=str(path)) from exc
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as exc:
        raise KnowledgeError(f"not YAML: {exc}", file=str(path)) from exc
    except OSError as exc:
        raise KnowledgeError(f"cannot read: {exc.strerror}", file=str(path)) from exc


_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.([A-Za-z_]\w*)")


def locate(path: Path, message: str) -> tuple[int | None, int | None]:
    """Line and column of the place a msgspec message names (`... - at `$.lines[3].samples``)."""
    match = re.search(r"at `\$?([^`]*)`", message)
    if match is None:
        return 1, 1
    node: Any = yaml.compose(path.read_text(encoding="utf-8"), Loader=_Base)
    for index, key in _STEP.findall(match[1]):
        if isinstance(node, yaml.SequenceNode) and index.isdigit() and int(index) < len(node.value):
            node = node.value[int(index)]
        elif isinstance(node, yaml.MappingNode) and key:
            found = next((v for k, v in node.value if k.value == key), None)
            if found is None:
                break
            node = found
        else:
            break
    return node.start_mark.line + 1, node.start_mark.column + 1
