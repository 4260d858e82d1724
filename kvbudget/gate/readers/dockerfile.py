"""Dockerfiles: stages, ENV/ARG, ENTRYPOINT and CMD in JSON and shell form, pip pins of RUN."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.gate.nodes import Malformed, documents, words_of
from kvbudget.gate.readers.variables import Env, finish_env
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.shell_words import Scope, Words
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.draft import Draft

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+")
_VARIABLE = re.compile(r"\\\$|\$\{([^{}]*)\}|\$([A-Za-z_]\w*)")
_PAIR = re.compile(r"([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:[^\s\\]|\\.)*)")


@dataclass
class _Stage:
    image: Text
    env: Env = field(default_factory=Env)
    scope: Scope = field(default_factory=Scope)
    entrypoint: list[Text] | None = None
    entry_shell: bool = False
    command: list[Text] | None = None
    own_command: bool = False


def read(context: Context) -> None:
    """The last stage's process (stages inherit by name)."""
    escape = re.match(r"(?:#.*\n)*#\s*escape\s*=\s*`", context.text.s, re.I)
    stages: dict[str, _Stage] = {}
    current: _Stage | None = None
    arguments = Scope(outside=dict(context.outside))
    order: list[_Stage] = []
    reader = context.reader()
    for name, line, body in _instructions(context.text, "`" if escape else "\\"):
        if name == "ARG":
            target = current.scope if current else arguments
            key, sep, _ = body.s.partition("=")
            if sep:
                value = _substitute(body.cut(len(key) + 1).strip(), target)
                target.set(key.strip(), [_unquote(value)])
            elif key.strip() in arguments.variables and current:
                current.scope.set(key.strip(), arguments.variables[key.strip()])
        elif name == "FROM":
            words = [body.cut(m.start(), m.end()) for m in re.finditer(r"\S+", body.s)]
            words = [word for word in words if not word.s.startswith("--")]
            if not words:
                continue
            image = _substitute(words[0], arguments)
            base = stages.get(image.s.lower())
            current = _Stage(image)
            if base:
                current.image, current.env = base.image, base.env.copy()
                current.entrypoint, current.command = base.entrypoint, base.command
                current.entry_shell = base.entry_shell
                current.scope.variables.update(base.scope.variables)
            if len(words) >= 3 and words[1].s.upper() == "AS":
                stages[words[2].s.lower()] = current
            order.append(current)
        elif current is None:
            continue
        elif name == "ENV":
            _env(body, current)
        elif name in ("ENTRYPOINT", "CMD"):
            words, shell = _form(name, line, body)
            if name == "ENTRYPOINT":
                current.entrypoint, current.entry_shell = words, shell
                if not current.own_command:
                    current.command = None  # the base image's CMD was meant for its entry point
            else:
                current.command, current.own_command = words, True
        elif name == "RUN":
            try:
                reader.script(body, Scope(), depth=1)
            except UnclosedQuote:
                continue
        elif name == "COPY" and (written := _written(body)) is not None:
            reader.files.append(written)
    if order:
        context.drafts.extend(_drafts(context, order[-1]))
    context.absorb(reader)
    for draft in context.drafts:
        if order and draft.image is None:  # a script that the image holds
            draft.image, draft.image_line = order[-1].image, order[-1].image.line


def _written(body: Text) -> tuple[str, Text] | None:
    """Name and text of the file that `COPY <<EOF NAME` makes."""
    head, sep, _ = body.s.partition("\n")
    target = head.split()[-1] if sep and "<<" in head else ""
    return (target, body.cut(len(head) + 1, body.s.rfind("\n") + 1)) if target else None


def _drafts(context: Context, stage: _Stage) -> list[Draft]:
    reader = context.reader()
    command = [] if stage.entry_shell else stage.command or []
    drafts = reader.image_command(
        stage.image, stage.entrypoint, command, dict(stage.env.values), depth=0
    )
    if not stage.entrypoint and not command:
        drafts = [draft for draft in drafts if draft.words]
    for draft in drafts:
        finish_env(draft, stage.env)
        draft.image, draft.image_line = stage.image, stage.image.line
        draft.host.container = False
    return drafts


def _instructions(text: Text, escape: str) -> list[tuple[str, int, Text]]:
    out: list[tuple[str, int, Text]] = []
    rows = text.split_lines()
    index = 0
    while index < len(rows):
        row = rows[index]
        index += 1
        if not row.s.strip() or row.s.lstrip().startswith("#"):
            continue
        parts: list[Text] = []
        heredocs = (
            re.findall(r"<<-?\s*['\"]?(\w+)['\"]?", row.s)
            if re.match(r"\s*(RUN|COPY)\b", row.s, re.I)
            else []
        )
        while True:
            stripped = row.s.rstrip()
            if stripped.endswith(escape):
                parts.append(row.cut(0, len(stripped) - 1))
                while index < len(rows) and (
                    rows[index].s.lstrip().startswith("#") or not rows[index].s.strip()
                ):
                    index += 1
                if index >= len(rows):
                    break
                row = rows[index]
                index += 1
                continue
            parts.append(row)
            break
        for stop in heredocs:
            body: list[Text] = []
            while index < len(rows) and rows[index].s.strip() != stop:
                body.append(rows[index])
                index += 1
            index += 1
            if re.match(r"\s*RUN\s+<<", row.s, re.I):  # the body is the script
                parts = [Text.join([Text.on("RUN", row.line), *body], "\n")]
            else:
                parts = [Text.join([*parts, *body, Text.on(stop, row.line)], "\n")]
        whole = Text.join(parts, " ")
        match = _INSTRUCTION.match(whole.s)
        if match:
            out.append(
                (
                    match.group(1).upper(),
                    whole.lines[match.start(1)],
                    whole.cut(match.end()).strip(),
                )
            )
    return out


def _form(name: str, line: int, body: Text) -> tuple[list[Text], bool]:
    if not body.s.startswith("["):
        return [Text.on("/bin/sh", body.line or line), Text.on("-c", body.line or line), body], True
    try:
        items = json.loads(body.s)
        fine = isinstance(items, list) and all(isinstance(item, str) for item in items)
    except ValueError:
        fine = False
    if not fine:
        if body.s.rstrip().endswith("]") and _bare(body.s):
            return [Text.on("/bin/sh", line), Text.on("-c", line), body], True
        raise Malformed("Dockerfile", line, f"the JSON form of {name} does not parse")
    docs = documents(body)
    return (words_of(docs[0]) if docs else []), False


def _bare(text: str) -> bool:
    """`[ -f x ] && y ]`-like shell text that only looks like JSON."""
    return not re.match(r"\[\s*\"", text)


def _env(body: Text, stage: _Stage) -> None:
    pairs = list(_PAIR.finditer(body.s))
    if not pairs or pairs[0].start() != 0:
        key, _, _ = body.s.partition(" ")
        value = _substitute(body.cut(len(key) + 1).strip(), stage.scope)
        _put(stage, key, value, body.line)
        return
    for match in pairs:
        raw = _unquote(body.cut(match.start(2), match.end(2)))
        _put(stage, match.group(1), _substitute(raw, stage.scope), body.lines[match.start()])


def _put(stage: _Stage, key: str, value: Text, line: int) -> None:
    stage.env.put(key, value, line)
    stage.scope.set(key, [value])


def _substitute(text: Text, scope: Scope) -> Text:
    lookup = Words(scope)

    def value(match: re.Match[str]) -> str | None:
        expr = match.group(1) or match.group(2)
        return lookup.lookup(expr, 0) if expr else HOLE if match.group() != "\\$" else None

    return text.sub(_VARIABLE, value)


def _unquote(text: Text) -> Text:
    if len(text.s) > 1 and text.s[0] in "\"'" and text.s[-1] == text.s[0]:
        return text.cut(1, -1)
    return text
