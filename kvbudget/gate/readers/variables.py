"""Variables and words of a container: `env:`, `$(VAR)`, `command:` and `args:`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.gate.draft import Draft, EnvValue
from kvbudget.gate.nodes import Node, words_of
from kvbudget.gate.shell import Script
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from collections.abc import Callable

_VAR = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")


@dataclass
class Env:
    """Variables of a container: value (HOLE if it comes from elsewhere) and line of the name."""

    values: dict[str, Text] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def put(self, name: str, value: Text, line: int) -> None:
        self.values[name] = value
        self.lines[name] = line

    def copy(self) -> Env:
        return Env(dict(self.values), dict(self.lines))


def read_env(
    node: Node, base: Env | None = None, source: Callable[[Node], Text | None] | None = None
) -> Env:
    """`env:` as a list of name/value or as a map; `source` knows what some `valueFrom:` gives."""
    env = base.copy() if base else Env()
    if node.is_map:
        for name, line, value in node.pairs():
            if value.is_scalar:
                env.put(name, value.text, line)
            elif value.has("value"):
                env.put(name, value.get("value").text, line)
            else:
                env.put(name, Text.on(HOLE, line), line)
        return env
    for item in node.elements():
        name = item.get("name").s
        if item.is_scalar and "=" in item.s:
            key, _, _ = item.s.partition("=")
            env.put(key, item.text.cut(len(key) + 1), item.text.line)
            continue
        if not name:
            continue
        line = item.get("name").text.line
        if item.has("value"):
            said = interpolate(item.get("value").text, env)
        elif item.has("valueFrom"):
            found = source(item.get("valueFrom")) if source is not None else None
            said = found.moved(line) if found is not None else Text.on(HOLE, line)
        else:
            said = Text("", [])
        env.put(name, said, line)
    return env


def interpolate(text: Text, env: Env) -> Text:
    """`$(VAR)` of the container's own variables."""

    def value(match: re.Match[str]) -> str | None:
        if match.group() == "$$":
            return None
        name = match.group(1)
        return env.values[name].s if name in env.values else HOLE

    return text.sub(_VAR, value)


def finish_env(draft: Draft, env: Env) -> None:
    """Variables stand at their names."""
    for name, line in env.lines.items():
        item = draft.env.get(name)
        if item is not None and item.value.s == env.values[name].s:
            draft.env[name] = EnvValue(item.value, line, item.file)


def word_list(node: Node, env: Env) -> list[Text]:
    """`command:`/`args:` as words: a list, or one string split by a shell's rules."""
    if node.is_list:
        return [interpolate(word, env) for word in words_of(node)]
    if node.is_scalar and node.s:
        return split_string(interpolate(node.text, env))
    return []


def split_string(text: Text) -> list[Text]:
    """A command written as one string."""
    try:
        script = Script(text.sub(re.compile(r"\n"), lambda _: " "))
        words: list[Text] = []
        for token in script.tokens:
            if token.kind == "word":
                words.extend(script.expand(token.parts))
    except UnclosedQuote:
        return [text.cut(m.start(), m.end()) for m in re.finditer(r"\S+", text.s)]
    return words
