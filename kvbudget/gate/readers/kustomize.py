"""Kustomize: bases of the tree with their patches (strategic merge, JSON 6902) and images."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.draft import Draft, Overlay
from kvbudget.gate.nodes import EMPTY, Malformed, Node, documents, merged
from kvbudget.gate.readers import config_maps, kubernetes, pods, values
from kvbudget.gate.readers.patches import apply, with_images
from kvbudget.gate.readers.variables import Env, word_list
from kvbudget.gate.source import Line, Text, file_of

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

FILES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
MAX_LEVELS = 12


@dataclass
class _Patch:
    """A strategic merge (a map) or JSON 6902 operations (a list), and what it is meant for."""

    body: Node
    kind: str
    name: str
    file: str
    used: bool = False


@dataclass
class _Object:
    """An object as built so far, the object of the file, and whether they differ."""

    node: Node
    source: Node
    file: str
    changed: bool = False


@dataclass
class _Layer:
    """What one kustomization adds."""

    objects: list[_Object] = field(default_factory=list)
    patches: list[_Patch] = field(default_factory=list)


def read(context: Context, doc: Node) -> None:
    """A kustomization that no other one builds on: its processes as they are deployed."""
    for chart in doc.get("helmCharts").elements():
        values.read(context, chart.get("valuesInline"))
    folder = _parent(context.path)
    if folder in _built_on(context):
        return
    layer = _build(context, context.path, 0)
    _follow_config_maps(layer)
    drafts: list[Draft] = []
    bases: set[tuple[str, int, str]] = set()
    nodes = [item.node for item in layer.objects]
    for item in layer.objects:
        if item.changed:
            drafts += _drafts(context, item.node, nodes)
            for base in _drafts(context, item.source, [item.source]):
                bases.add((file_of(base.line) or item.file, int(base.line), base.engine))
    used = {patch.file for patch in layer.patches if patch.used}
    for patch in layer.patches:
        if not patch.used and patch.file == context.path:
            _alone(context, patch.body)
    if drafts:
        mine = {patch.file for patch in layer.patches} | {context.path}
        line = Line(next(iter(doc.items()))[0].line, context.path)
        overlay = Overlay(context.path, drafts, bases, used - {context.path}, mine, line)
        context.overlays.append(overlay)


def _drafts(context: Context, node: Node, nodes: list[Node]) -> list[Draft]:
    inner = context.inner(context.path, context.text)
    kubernetes.read_object(inner, node, nodes)
    return inner.drafts


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _join(folder: str, name: str) -> str | None:
    """`name` seen from `folder`; None for what lies outside (a URL, above the tree)."""
    if "://" in name or name.startswith(("/", "github.com", "git@")) or "?ref=" in name:
        return None
    parts: list[str] = []
    for part in (*PurePosixPath(folder).parts, *PurePosixPath(name).parts):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."


def _load(context: Context, path: str) -> list[Node]:
    """Documents of a file of the tree, with lines that know the file."""
    text = context.tree.read(path)
    if text is None:
        return []
    try:
        return documents(text.standing_in(path))
    except Malformed:
        return []


def _resources(doc: Node, *keys: str) -> list[str]:
    return [item.s for key in keys for item in doc.get(key).elements() if item.s]


def _below(context: Context, folder: str) -> str | None:
    """The kustomization file of a folder."""
    paths = (_join(folder, name) for name in FILES)
    return next((path for path in paths if path and context.tree.read(path)), None)


def _built_on(context: Context) -> set[str]:
    """Folders that some kustomization of the tree names as a resource."""
    out: set[str] = set()
    for found in context.tree.files:
        if PurePosixPath(found.path).name not in FILES:
            continue
        for doc in _load(context, found.path)[:1]:
            for name in _resources(doc, "resources", "bases", "components"):
                target = _join(_parent(found.path), name)
                if target is not None:
                    out.add(target)
    return out


def _build(context: Context, path: str, level: int) -> _Layer:
    """Objects of a kustomization with everything it and the ones below it say."""
    layer = _Layer()
    doc = next(iter(_load(context, path)), EMPTY)
    if level > MAX_LEVELS or not doc.is_map:
        return layer
    for name in _resources(doc, "resources", "bases"):
        target = _join(_parent(path), name)
        below = _below(context, target) if target is not None else None
        if below is not None:
            inner = _build(context, below, level + 1)
            layer.objects += inner.objects
            layer.patches += inner.patches
        elif target is not None:
            nodes = [node for node in _load(context, target) if node.get("kind").s]
            layer.objects += [_Object(node, node, target) for node in nodes]
    for name in _resources(doc, "components"):
        target = _join(_parent(path), name)
        below = _below(context, target) if target is not None else None
        if below is not None:
            _change(context, layer, next(iter(_load(context, below)), EMPTY), below)
    _change(context, layer, doc, path)
    return layer


def _change(context: Context, layer: _Layer, doc: Node, path: str) -> None:
    """Apply the patches and images of one kustomization to the objects so far."""
    own = _patches(context, doc, _parent(path), path)
    for patch in own:
        for item in layer.objects:
            if _meant(patch, item.node):
                patch.used = True
                item.node, item.changed = apply(item.node, patch.body), True
    layer.patches += own
    for made, behavior in config_maps.generated(context, doc, path):
        _generate(layer, config_maps.as_object(made), behavior, path)
    images = [image for image in doc.get("images").elements() if image.get("name").s]
    for item in layer.objects if images else []:
        node = with_images(item.node, images)
        if node is not item.node:
            item.node, item.changed = node, True


def _generate(layer: _Layer, made: Node, behavior: str, path: str) -> None:
    """A generated ConfigMap: a new one, or changes to the one of its name."""
    name = made.get("metadata", "name").s
    for item in layer.objects:
        if config_maps.is_one(item.node) and item.node.get("metadata", "name").s == name:
            item.node = merged(item.node, made) if behavior == "merge" else made
            item.changed = True
            return
    layer.objects.append(_Object(made, made, path))


def _follow_config_maps(layer: _Layer) -> None:
    """What uses a ConfigMap of another level, or a changed one, is changed too."""
    maps = [item for item in layer.objects if config_maps.is_one(item.node)]
    for item in layer.objects:
        strange = {
            one.node.get("metadata", "name").s
            for one in maps
            if one.changed or _parent(one.file) != _parent(item.file)
        }
        if not item.changed and strange and config_maps.refers(item.node, strange):
            item.changed = True


# ---- patches ---------------------------------------------------------------------------------
def _patches(context: Context, doc: Node, folder: str, path: str) -> list[_Patch]:
    out: list[_Patch] = []
    entries = [(item, item.get("target")) for item in doc.get("patches").elements()]
    entries += [(item, item.get("target")) for item in doc.get("patchesJson6902").elements()]
    for item, target in entries:
        kind, name = target.get("kind").s, target.get("name").s
        if item.get("patch").s:
            bodies, file = _inline(item.get("patch").text), path
        else:
            file = _join(folder, item.get("path").s) or ""
            bodies = _load(context, file) if file else []
        out += [_Patch(body, kind, name, file) for body in bodies]
    for item in doc.get("patchesStrategicMerge").elements():
        if "\n" in item.s:
            bodies, file = _inline(item.text), path
        else:
            file = _join(folder, item.s) or ""
            bodies = _load(context, file) if file else []
        out += [_Patch(body, "", "", file) for body in bodies]
    return out


def _inline(text: Text) -> list[Node]:
    try:
        return documents(text)
    except Malformed:
        return []


def _meant(patch: _Patch, node: Node) -> bool:
    kind, name = patch.kind, patch.name
    if not kind and not name and patch.body.is_map:
        kind = patch.body.get("kind").s
        name = re.escape(patch.body.get("metadata", "name").s)
    own = node.get("metadata", "name").s
    return (not kind or kind == node.get("kind").s) and (not name or _matches(name, own))


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:
        return pattern == name


# ---- a patch whose base is not in the tree ---------------------------------------------------
def _alone(context: Context, body: Node) -> None:
    if body.is_list:
        read_operations(context, body)
    elif body.is_map:
        kubernetes.read_object(context, body, [body])


def read_operations(context: Context, doc: Node) -> None:
    """JSON 6902 operations without their base: the words they put into args or command."""
    words: list[Text] = []
    line = 0
    for op in doc.elements():
        path = op.get("path").s
        if "/args" not in path and "/command" not in path:
            continue
        value = op.get("value")
        line = line or op.key_line("value")
        if value.is_list:
            words += word_list(value, Env())
        elif value.s:
            words.append(value.text)
    engine = pods.known_engine(Text("", []), words)
    if engine is None:
        return
    draft = Draft(engine, words[0].line or line, words=words)
    draft.host.container = draft.host.shm_provided = True
    context.drafts.append(draft)
