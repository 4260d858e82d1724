"""Commands in YAML and JSON of no known shape: task runners, CI services, model servers' configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.gate.engines import data, find_engine, says_engine
from kvbudget.gate.nodes import Node, words_of
from kvbudget.gate.program import inherit, share
from kvbudget.gate.readers.variables import Env, finish_env, read_env
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.source import Text

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_ENV = ("env", "envs", "environment", "environment_variables")
_BY_NAME = ("scripts", "processes", "tasks")
"""Maps whose values are commands, whatever their keys."""
MAX_LEVELS = 12


def read(context: Context, doc: Node) -> None:
    """What stands under a key that holds a command, with the image and variables around it."""
    _walk(context, doc, Env(), Text("", []), 0)


def _walk(context: Context, node: Node, env: Env, image: Text, level: int) -> None:
    if level > MAX_LEVELS:
        return
    for key in _ENV:
        env = read_env(node.get(key), env)
    for found in (node.get("image"), node.get("base_image", "image")):
        image = found.text if found.s else image
    for key, _, value in node.pairs():
        if key in data()["command_keys"]["names"]:
            _command(context, value, env, image)
        if key in _BY_NAME:
            for _, _, item in value.pairs():
                _command(context, item, env, image)
        if not value.is_scalar:
            _walk(context, value, env, image, level + 1)
    for item in node.elements():
        if not item.is_scalar:
            _walk(context, item, env, image, level + 1)


def _command(context: Context, value: Node, env: Env, image: Text) -> None:
    """A script, a list of its lines, or the words of one command."""
    words = words_of(value) if value.is_list else [value.text]
    if not any(says_engine(word.s) for word in words):
        return
    reader = context.reader()
    if find_engine(words) is not None or any(word.s.startswith("-") for word in words):
        drafts = reader.words(words, dict(env.values))
    else:
        try:
            drafts = reader.script(Text.join(words, "\n"), inherit(env.values), depth=1)
        except UnclosedQuote:
            return
    for draft in drafts:
        finish_env(draft, env)
        if image.s and draft.image is None:
            draft.image, draft.image_line = image, image.line
    share(drafts, f"{context.path}#{value.line}")
    context.drafts.extend(drafts)
    context.absorb(reader)
