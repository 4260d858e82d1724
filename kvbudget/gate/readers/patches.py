"""What a kustomization does to an object: strategic merges, JSON 6902 operations, image names."""

from __future__ import annotations

import re

from kvbudget.gate.nodes import EMPTY, Node
from kvbudget.gate.source import Text
from kvbudget.gate.units import is_count

_MERGE_KEYS = {
    "containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
    "volumeMounts": "mountPath", "ports": "containerPort",
}  # fmt: skip


def apply(node: Node, body: Node) -> Node:
    """`node` under a strategic merge (a map) or JSON 6902 operations (a list)."""
    if body.is_map:
        return _strategic(node, body)
    for op in body.elements():
        steps = [part.replace("~1", "/").replace("~0", "~") for part in op.get("path").s.split("/")]
        node = _operation(node, steps[1:], op.get("op").s, op.get("value"), op.key_line("value"))
    return node


def _strategic(node: Node, over: Node, key: str = "") -> Node:
    """`over` merged into `node` as Kubernetes does it: maps by key, some lists by name."""
    if over.get("$patch").s == "replace":
        return over
    if node.is_map and over.is_map:
        items = {name.s: (name, value) for name, value in node.items()}
        for name, value in over.items():
            if value.is_scalar and not value.s and value.plain:
                items.pop(name.s, None)
                continue
            old = items.get(name.s)
            items[name.s] = (name, _strategic(old[1], value, name.s) if old else value)
        return Node.mapping(list(items.values()), node.line)
    identity = _MERGE_KEYS.get(key)
    if node.is_list and over.is_list and identity is not None:
        out = list(node.elements())
        for item in over.elements():
            at = next(
                (i for i, old in enumerate(out) if old.get(identity).s == item.get(identity).s),
                None,
            )
            if item.get("$patch").s == "delete":
                out = [old for i, old in enumerate(out) if i != at]
            elif at is None:
                out.append(item)
            else:
                out[at] = _strategic(out[at], item)
        return Node.sequence(out, node.line)
    return over


def _operation(node: Node, steps: list[str], op: str, value: Node, line: int) -> Node:
    """One JSON 6902 operation; what its path does not reach stays as it is."""
    if not steps:
        return node if op in ("test", "remove", "move", "copy") else value
    step, rest = steps[0], steps[1:]
    if node.is_map or (node is EMPTY and op == "add"):
        items = {key.s: (key, item) for key, item in node.items()}
        if not rest and op == "remove":
            items.pop(step, None)
        elif rest and step not in items and op != "add":
            return node
        else:
            key, old = items.get(step, (Text.on(step, line), EMPTY))
            items[step] = (key, _operation(old, rest, op, value, line))
        return Node.mapping(list(items.values()), node.line or line)
    if not node.is_list:
        return node
    out = list(node.elements())
    at = len(out) if step == "-" else int(step) if is_count(step) else -1
    if not rest and op == "add" and 0 <= at <= len(out):
        out.insert(at, value)
    elif not 0 <= at < len(out):
        return node
    elif not rest and op == "remove":
        del out[at]
    else:
        out[at] = _operation(out[at], rest, op, value, line)
    return Node.sequence(out, node.line)


def with_images(node: Node, images: list[Node]) -> Node:
    """`images:` of a kustomization on every `image:` of a container; the same node if none fits."""
    if node.is_list:
        made = [with_images(item, images) for item in node.elements()]
        same = all(new is old for new, old in zip(made, node.elements(), strict=True))
        return node if same else Node.sequence(made, node.line)
    if not node.is_map:
        return node
    items = []
    changed = False
    for key, value in node.items():
        new = _renamed(value, images) if key.s == "image" else with_images(value, images)
        changed = changed or new is not value
        items.append((key, new))
    return Node.mapping(items, node.line) if changed else node


def _renamed(value: Node, images: list[Node]) -> Node:
    text = value.text
    bare = re.sub(r"(:[\w.-]+)?(@sha256:\w+)?\Z", "", text.s)
    image = next((item for item in images if item.get("name").s == bare), None)
    if image is None or not bare:
        return value
    name, tag, digest = (image.get(key).text for key in ("newName", "newTag", "digest"))
    parts = [name.moved(text.line) if name.s else text.cut(0, len(bare))]
    if digest.s:
        parts += [Text.on("@", digest.line), digest]
    elif tag.s:
        parts += [Text.on(":", tag.line), tag]
    else:
        parts.append(text.cut(len(bare)))
    return Node.scalar(Text.join(parts), value.line)
