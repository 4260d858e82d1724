"""systemd units and Podman quadlets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.gate.containers import DockerOptions, add_cdi, env_file
from kvbudget.gate.readers.variables import Env, finish_env, split_string
from kvbudget.gate.source import HOLE, Text
from kvbudget.gate.units import binary_size

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.draft import Draft

_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
_SPECIFIER = re.compile(r"%[a-zA-Z%]")


def read(context: Context) -> None:
    """[Service] ExecStart with its Environment, or [Container] Exec with Image."""
    rows = _rows(context.text)
    env = Env()
    for section, key, value in rows:
        if section not in ("Service", "Container"):
            continue
        if key == "EnvironmentFile":
            found = context.tree.neighbour(value.s.lstrip("-").strip(), context.path)
            if found is not None:
                for name, item in env_file(found[1]):
                    env.put(name, item.moved(value.line), value.line)
        elif key == "Environment":
            for word in _assignments(value):
                name, sep, _ = word.s.partition("=")
                if sep:
                    env.put(name, _specifiers(word.cut(len(name) + 1)), word.line)
    if any(section == "Container" for section, _, _ in rows):
        _quadlet(context, rows, env)
    else:
        _service(context, rows, env)


def _rows(text: Text) -> list[tuple[str, str, Text]]:
    out: list[tuple[str, str, Text]] = []
    section = ""
    held: list[Text] = []
    for row in text.split_lines():
        stripped = row.s.strip()
        if not held and (not stripped or stripped[0] in "#;"):
            continue
        if held and stripped[:1] in ("#", ";"):
            continue
        if stripped.endswith("\\"):
            tail = row.s.rstrip()
            held.append(row.cut(0, len(tail) - 1))
            continue
        whole = Text.join([*held, row], " ")
        held = []
        match = re.match(r"\s*\[(\w+)\]\s*\Z", whole.s)
        if match:
            section = match.group(1)
            continue
        key, sep, _ = whole.s.partition("=")
        if sep:
            out.append((section, key.strip(), whole.cut(len(key) + 1).strip()))
    return out


def _assignments(value: Text) -> list[Text]:
    out = []
    for match in re.finditer(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|(\w+=\"[^\"]*\")|(\S+)", value.s):
        group = next(i for i in (1, 2, 3, 4) if match.group(i) is not None)
        word = value.cut(match.start(group), match.end(group))
        if group == 3:
            name, _, _ = word.s.partition("=")
            word = Text.join([word.cut(0, len(name) + 1), word.cut(len(name) + 2, len(word.s) - 1)])
        out.append(word)
    return out


def _expand(value: Text, env: Env) -> Text:
    def variable(match: re.Match[str]) -> str | None:
        if match.group() == "$$":
            return "$"
        name = match.group(1) or match.group(2)
        return env.values[name].s if name in env.values else HOLE

    return _specifiers(value.sub(_VARIABLE, variable))


def _specifiers(value: Text) -> Text:
    """`%i` and its kin are known when the unit starts; `%%` is a percent sign."""
    return value.sub(_SPECIFIER, lambda match: "%" if match.group() == "%%" else HOLE)


def _service(context: Context, rows: list[tuple[str, str, Text]], env: Env) -> None:
    reader = context.reader()
    limit = next(
        (value for s, key, value in rows if s == "Service" and key in ("MemoryMax", "MemoryLimit")),
        None,
    )
    for section, key, value in rows:
        if section != "Service" or key != "ExecStart" or not value.s:
            continue
        start = len(value.s) - len(value.s.lstrip("@-:+!"))
        words = split_string(_expand(value.cut(start), env))
        drafts = reader.words(words, dict(env.values))
        for draft in drafts:
            finish_env(draft, env)
            if limit is not None and draft.host.memory_limit is None:
                draft.host.memory_limit = binary_size(limit.s)
            draft.host.share_unit = context.path
        context.drafts.extend(drafts)
    context.absorb(reader)


def _quadlet(context: Context, rows: list[tuple[str, str, Text]], env: Env) -> None:
    values: dict[str, list[Text]] = {}
    for section, key, value in rows:
        if section in ("Container", "Service"):
            values.setdefault(key, []).append(value)
    image = values.get("Image", [Text("", [])])[-1]
    exec_words = split_string(_expand(values["Exec"][-1], env)) if "Exec" in values else []
    entry = split_string(values["Entrypoint"][-1]) if "Entrypoint" in values else None
    reader = context.reader()
    drafts = reader.image_command(image if image.s else None, entry, exec_words, dict(env.values))
    for draft in drafts:
        finish_env(draft, env)
        _quadlet_host(draft, values, context)
        draft.host.share_unit = context.path
    context.drafts.extend(drafts)
    context.absorb(reader)


def _quadlet_host(draft: Draft, values: dict[str, list[Text]], context: Context) -> None:
    host = draft.host
    for row in values.get("PodmanArgs", []):
        DockerOptions(
            [*split_string(row), Text.on("image", row.line)], {}, context.reader().source
        ).apply(draft)
    for row in values.get("AddDevice", []):
        if "nvidia.com/gpu=" in row.s:
            add_cdi(row.s, draft)
    for row in values.get("ShmSize", []):
        host.shm, host.shm_line = binary_size(row.s), row.line
    for key in ("Memory", "MemoryMax"):
        for row in values.get(key, []):
            if host.memory_limit is None:
                host.memory_limit = binary_size(row.s)
    if any(row.s == "host" for row in values.get("Ipc", []) + values.get("IPC", [])):
        host.ipc_host = True
    host.container = True
