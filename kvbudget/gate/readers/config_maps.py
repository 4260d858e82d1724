"""ConfigMaps of the tree: variables that containers take from them, files that they mount."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.config_map import ConfigMap, Mounted
from kvbudget.gate.containers import env_file
from kvbudget.gate.nodes import Malformed, Node, documents
from kvbudget.gate.readers.variables import Env, read_env
from kvbudget.gate.source import HOLE, Text, file_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvbudget.gate.context import Context

_KUSTOMIZATIONS = ("kustomization", "Kustomization")


# ---- where they stand ------------------------------------------------------------------------
def is_one(node: Node) -> bool:
    """True for an object of this kind."""
    return node.get("kind").s == "ConfigMap"


def of_object(node: Node, file: str, chart: str | None = None) -> ConfigMap:
    """The ConfigMap that an object describes."""
    made = ConfigMap(node.get("metadata", "name").s, file, chart)
    for key, _, value in node.get("data").pairs():
        if value.is_scalar:
            made.data[key] = value.text
    return made


def generated(context: Context, doc: Node, path: str) -> Iterator[tuple[ConfigMap, str]]:
    """ConfigMaps that a kustomization makes, and what they do to one of the same name."""
    folder = PurePosixPath(path).parent
    for entry in doc.get("configMapGenerator").elements():
        made = ConfigMap(entry.get("name").s, path)
        for item in entry.get("literals").elements():
            name, _, _ = item.s.partition("=")
            value = item.text.cut(len(name) + 1)
            quoted = len(value.s) > 1 and value.s[0] in "\"'" and value.s[-1] == value.s[0]
            made.data[name] = value.cut(1, -1) if quoted else value
        for item in [*entry.get("envs").elements(), entry.get("env")]:
            text = context.tree.read(str(folder / item.s)) if item.s else None
            if text is not None:
                made.data.update(env_file(text.standing_in(str(folder / item.s))))
        for item in entry.get("files").elements():
            key, sep, source = item.s.rpartition("=")
            text = context.tree.read(str(folder / source)) if source else None
            if text is not None:
                file = str(folder / source)
                made.data[key if sep else PurePosixPath(source).name] = text.standing_in(file)
        yield made, entry.get("behavior").s or "create"


def as_object(config: ConfigMap) -> Node:
    """The object that a kustomization makes."""

    def text(s: str) -> Text:
        return Text.on(s, 1).standing_in(config.file)

    data = [(text(key), Node.scalar(value, value.line)) for key, value in config.data.items()]
    name = [(text("name"), Node.scalar(text(config.name), 1))]
    return Node.mapping(
        [
            (text("kind"), Node.scalar(text("ConfigMap"), 1)),
            (text("metadata"), Node.mapping(name, 1)),
            (text("data"), Node.mapping(data, 1)),
        ],
        1,
    )


def refers(node: Node, names: set[str]) -> bool:
    """True where an object takes variables or files from one of these ConfigMaps."""
    return any(
        inner.get(*path).s in names
        for inner in node.walk()
        if inner.is_map
        for path in (("configMapRef", "name"), ("configMapKeyRef", "name"), ("configMap", "name"))
    )


def _of_tree(context: Context) -> list[ConfigMap]:
    """All ConfigMaps of the tree, read once."""
    known = context.tree.config_maps
    if known is None:
        known = context.tree.config_maps = []
        for found in context.tree.files:
            if found.path.endswith((".yaml", ".yml", *_KUSTOMIZATIONS)):
                known += _of_file(context, found.path)
    return known


def _of_file(context: Context, path: str) -> Iterable[ConfigMap]:
    from kvbudget.gate.readers import template

    text = context.tree.read(path)
    if text is None or ("ConfigMap" not in text.s and "configMapGenerator" not in text.s):
        return
    inner = context.inner(path, text.standing_in(path))
    chart = template.chart_root(inner) if template.in_chart(inner) else None
    try:
        docs = documents(template.rendered(inner) if chart is not None else inner.text)
    except Malformed:
        return
    for doc in docs:
        for node in doc.get("items").elements() if doc.get("kind").s == "List" else [doc]:
            if is_one(node):
                yield of_object(node, path, chart)
        if PurePosixPath(path).stem in _KUSTOMIZATIONS:
            yield from (one for one, _ in generated(context, doc, path))


def beside(context: Context, chart: str | None = None) -> list[ConfigMap]:
    """ConfigMaps among the objects of the file that is read."""
    return [of_object(node, context.path, chart) for node in context.objects if is_one(node)]


def find(context: Context, name: str) -> list[ConfigMap]:
    """ConfigMaps of a name: of the file that asks, else of its folder, else of the tree."""
    from kvbudget.gate.readers import template

    chart = template.chart_root(context)
    near = [one for one in beside(context, chart) if one.goes_by(name, chart)]
    found = near or [one for one in _of_tree(context) if one.goes_by(name, chart)]
    folder = PurePosixPath(context.path).parent
    return [one for one in found if PurePosixPath(one.file).parent == folder] or found


def value_of(context: Context, name: str, key: str) -> Text | None:
    """A key of a ConfigMap; None where it is missing or differs from file to file."""
    values = [one.data.get(key) for one in find(context, name)]
    if not values or any(value is None or value.s != values[0].s for value in values if values[0]):
        return None
    return values[0]


# ---- what containers take from them ----------------------------------------------------------
def container_env(context: Context, container: Node, base: Env | None = None) -> Env:
    """`envFrom:` and `env:` of a container; values of Secrets stay unknown."""
    env = base.copy() if base else Env()
    for entry in container.get("envFrom").elements():
        reference = entry.get("configMapRef", "name")
        found = find(context, reference.s) if reference.s else []
        for key in dict.fromkeys(key for one in found for key in one.data):
            value = value_of(context, reference.s, key)
            said = Text.on(HOLE, reference.line) if value is None else value.moved(reference.line)
            env.put(entry.get("prefix").s + key, said, reference.line)

    def source(node: Node) -> Text | None:
        reference = node.get("configMapKeyRef")
        return value_of(context, reference.get("name").s, reference.get("key").s)

    return read_env(container.get("env"), env, source)


def mounted(context: Context, container: Node, pod: Node) -> dict[str, Mounted]:
    """Files under the mounts of a container: path -> text."""
    sources: dict[str, list[Node]] = {}
    for volume in pod.get("volumes").elements():
        parts = [volume, *volume.get("projected", "sources").elements()]
        sources[volume.get("name").s] = [
            part.get("configMap") for part in parts if part.get("configMap").is_map
        ]
    out: dict[str, Mounted] = {}
    for mount in container.get("volumeMounts").elements():
        folder, single = mount.get("mountPath").s, mount.get("subPath").s
        for source in sources.get(mount.get("name").s, []):
            paths = {
                item.get("key").s: item.get("path").s for item in source.get("items").elements()
            }
            found = find(context, source.get("name").s)
            if len(found) != 1:
                continue
            for key, text in found[0].data.items():
                if paths and key not in paths:
                    continue
                name = paths.get(key, key)
                if single and name != single:
                    continue
                path = folder if single else f"{folder.rstrip('/')}/{name}"
                file = file_of(text.line) or found[0].file
                out[path] = Mounted(text, file, found[0].key_of(key))
    return out
