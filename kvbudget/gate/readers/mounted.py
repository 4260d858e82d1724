"""Scripts of ConfigMaps that a pod runs, read with the pod's variables, image and limits."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.config_map import named
from kvbudget.gate.program import inherit
from kvbudget.gate.readers import config_maps, pods
from kvbudget.gate.readers.config_maps import container_env
from kvbudget.gate.readers.variables import finish_env, word_list
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.source import Line, file_of

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.draft import Draft
    from kvbudget.gate.nodes import Node


def scripts(context: Context, pod: Node) -> list[Draft]:
    """Scripts of ConfigMaps that a container of this pod runs by name."""
    out: list[Draft] = []
    containers = pod.get("containers").elements()
    for container in containers:
        env = container_env(context, container)
        words = [
            *word_list(container.get("command"), env),
            *word_list(container.get("args"), env),
        ]
        files = config_maps.mounted(context, container, pod)
        found = {file.mark: file.text for file in named(files, words)}
        said = " ".join(word.s for word in words)
        for config in config_maps.beside(context):
            for key, text in config.data.items():
                if _names(said, key):
                    found.setdefault(config.key_of(key), text)
        for text in found.values():
            if "\n" not in text.s:
                continue
            reader = context.reader()
            try:
                drafts = reader.script(text, inherit(env.values))
            except UnclosedQuote:
                continue
            context.absorb(reader)
            for draft in drafts:
                image = pods.image_text(container.get("image"))
                if image.s:
                    draft.image, draft.image_line = image, image.line
                finish_env(draft, env)
                pods.host_of(draft.host, container, pod, containers)
                draft.files = files
                _abroad(draft, context.path)
            out += drafts
    return out


def _abroad(draft: Draft, path: str) -> None:
    """A process that stands in another file than its pod: what the pod says keeps its place."""
    if file_of(draft.line) in (None, path):
        return
    if draft.image is not None:
        draft.image = draft.image.standing_in(path)
        draft.image_line = draft.image.line
    for item in draft.env.values():
        item.line = Line(item.line, path)
    draft.host.shm_line = Line(draft.host.shm_line, path)


def _names(said: str, key: str) -> bool:
    return any(PurePosixPath(word.strip("\"';")).name == key for word in said.split())


def run_by(obj: Node, key: str) -> bool:
    """True where a container of the object names the file."""
    for node in obj.walk():
        for part in ("command", "args"):
            said = " ".join(item.s for item in node.get(part).elements())
            if said and _names(said, key):
                return True
    return False
