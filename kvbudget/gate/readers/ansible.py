"""Ansible: commands and container modules with `{{ var }}` and role defaults."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.nodes import Malformed, Node, documents, words_of
from kvbudget.gate.program import share
from kvbudget.gate.readers.variables import finish_env, read_env, split_string
from kvbudget.gate.source import HOLE, Text
from kvbudget.gate.units import binary_size, is_count

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_USE = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.S)
_DEFAULT = re.compile(
    r"([A-Za-z_]\w*)\s*\|\s*default\(\s*(?:'([^']*)'|\"([^\"]*)\"|([\w.]+))\s*(?:,\s*\w+\s*)?\)"
)
_PLAIN = re.compile(r"([A-Za-z_]\w*)(?:\s*\|\s*(?:string|int|float|quote|trim|lower|upper))*")
_BLOCKS = ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always")
_CONTAINER = re.compile(r"(?:.*\.)?(docker_container|podman_container)\Z")
_SHELL = re.compile(r"(?:.*\.)?(shell|command|raw|script)\Z")


def is_ansible(elements: list[Node]) -> bool:
    """Plays or tasks."""
    return any(
        item.has("hosts") or item.has("tasks")
        or (item.has("name") and any(_CONTAINER.match(k) or _SHELL.match(k) for k in item.names()))
        or any(_CONTAINER.match(k) for k in item.names())
        or item.has("block")
        for item in elements
    )  # fmt: skip


def read(context: Context, doc: Node) -> None:
    """All tasks of a playbook or a role's task file."""
    variables = role_defaults(context)
    for item in doc.elements():
        local = dict(variables)
        for name, _, value in item.get("vars").pairs():
            if value.is_scalar:
                local[name] = value.s
        _tasks(context, item, local)


def _tasks(context: Context, item: Node, variables: dict[str, str]) -> None:
    for key in _BLOCKS:
        for task in item.get(key).elements():
            local = dict(variables)
            for name, _, value in task.get("vars").pairs():
                if value.is_scalar:
                    local[name] = value.s
            _tasks(context, task, local)
    for key, _, value in item.pairs():
        if _CONTAINER.match(key) and value.is_map:
            _container(context, value, variables)
        elif _SHELL.match(key):
            _shell(context, value, item, variables)


def role_defaults(context: Context) -> dict[str, str]:
    """Literal defaults and vars of the role a task file or template belongs to."""
    parts = PurePosixPath(context.path).parts
    out: dict[str, str] = {}
    places = []
    inside = [i for i, part in enumerate(parts) if part in ("tasks", "handlers", "templates")]
    if inside:
        at = inside[-1]
        role = "/".join(parts[:at])
        places = [
            f"{role}/{kind}/main.{ext}" for kind in ("defaults", "vars") for ext in ("yml", "yaml")
        ]
    here = "/".join(parts[:-1])
    places += [f"{here}/group_vars/all.yml", f"{here}/group_vars/all.yaml"]
    for place in places:
        text = context.tree.read(place.lstrip("/"))
        if text is None:
            continue
        try:
            docs = documents(text)
        except Malformed:
            continue
        for doc in docs:
            for name, _, value in doc.pairs():
                if value.is_scalar:
                    out[name] = value.s
    return out


def expression(expr: str, variables: dict[str, str], depth: int = 0) -> str:
    """One `{{ expression }}`."""
    default = _DEFAULT.fullmatch(expr)
    if default:
        if default.group(1) in variables:
            return _resolve(variables[default.group(1)], variables, depth + 1)
        return next(group for group in default.groups()[1:] if group is not None)
    plain = _PLAIN.fullmatch(expr)
    if plain and plain.group(1) in variables:
        return _resolve(variables[plain.group(1)], variables, depth + 1)
    literal = re.fullmatch(r"'([^']*)'|\"([^\"]*)\"|([\d.]+)", expr)
    if literal:
        return next(group for group in literal.groups() if group is not None)
    return HOLE


_JINJA = re.compile(r"(?<!\$)\{\{-?\s*(.*?)\s*-?\}\}", re.S)


def without_jinja(text: Text, variables: dict[str, str] | None = None) -> Text:
    """A Jinja template whose expressions have their variable or default, or no value."""
    return text.sub(_JINJA, lambda m: expression(m.group(1), variables or {}))


def _resolve(text: str, variables: dict[str, str], depth: int) -> str:
    if depth > 6:
        return HOLE
    return _USE.sub(lambda m: expression(m.group(1), variables, depth), text)


def _text(text: Text, variables: dict[str, str]) -> Text:
    return text.sub(_USE, lambda m: expression(m.group(1), variables))


def _container(context: Context, node: Node, variables: dict[str, str]) -> None:
    env = read_env(node.get("env"))
    for name, value in list(env.values.items()):
        env.values[name] = _text(value, variables)
    image = _text(node.get("image").text, variables)
    command = node.get("command")
    if command.is_list:
        words = [_text(word, variables) for word in words_of(command)]
    else:
        words = split_string(_text(command.text, variables))
    entry = node.get("entrypoint")
    entry_words = [_text(word, variables) for word in words_of(entry)] or split_string(
        _text(entry.text, variables)
    )
    reader = context.reader()
    drafts = reader.image_command(
        image if image.s else None, entry_words or None, words, dict(env.values)
    )
    context.absorb(reader)
    for draft in drafts:
        finish_env(draft, env)
        host = draft.host
        for key in ("memory", "memory_limit"):
            value = _text(node.get(key).text, variables)
            if value.s and value.known:
                host.memory_limit = binary_size(value.s)
        shm = _text(node.get("shm_size").text, variables)
        if shm.s:
            host.shm = binary_size(shm.s) if shm.known else None
            host.shm_line = node.key_line("shm_size")
            host.shm_provided = host.shm is None
        mode = node.get("ipc_mode").s or node.get("ipc").s
        if mode == "host":
            host.ipc_host = True
        for request in node.get("device_requests").elements():
            ids = [item.s for item in request.get("device_ids").elements()]
            count = _text(request.get("count").text, variables).s
            if ids:
                host.gpu_ids = host.share_ids = ids
                host.gpus = len(ids)
            elif is_count(count):
                host.gpus = int(count)
        host.share_unit = context.path
    context.drafts.extend(drafts)


def _shell(context: Context, value: Node, task: Node, variables: dict[str, str]) -> None:
    from kvbudget.gate.shell_words import Scope

    text = value.get("cmd").text if value.is_map else value.text
    if value.is_map and value.get("argv").is_list:
        words = [_text(word, variables) for word in words_of(value.get("argv"))]
        drafts = context.reader().words(words, {})
    else:
        if not text.s:
            return
        env = read_env(task.get("environment"))
        scope = Scope()
        for name, item in env.values.items():
            scope.set(name, [_text(item, variables)], exported=True)
        reader = context.reader()
        body = _text(text, variables)
        if "\\" not in body.s and "\n" in body.s.strip() and not re.search(r"shell\Z", _key(task)):
            body = body.sub(re.compile(r"\n"), lambda _: " ")
        drafts = reader.script(body, scope, depth=1)
        context.absorb(reader)
        for draft in drafts:
            finish_env(draft, env)
    share(drafts, context.path)
    context.drafts.extend(drafts)


def _key(task: Node) -> str:
    return next((key for key in task.names() if _SHELL.match(key)), "")
