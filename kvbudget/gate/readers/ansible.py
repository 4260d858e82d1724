"""Ansible: commands and container modules with `{{ var }}` and role defaults."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.nodes import Malformed, Node, documents, words_of
from kvbudget.gate.program import share
from kvbudget.gate.readers.jinja import filled
from kvbudget.gate.readers.variables import finish_env, read_env, split_string
from kvbudget.gate.source import HOLE
from kvbudget.gate.units import binary_size, is_count

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_BLOCKS = ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always")
_CONTAINER = re.compile(r"(?:.*\.)?(docker_container|podman_container)\Z")
_SHELL = re.compile(r"(?:.*\.)?(shell|command|raw|script)\Z")
_WRITTEN = re.compile(r"(?:.*\.)?(copy|blockinfile)\Z")
"""Modules that write a file whose text stands in the task."""
_TEMPLATE = re.compile(r"(?:.*\.)?template\Z")
_DEFINED = re.compile(r"(?:.*\.)?(k8s|docker_compose(?:_v2)?|helm)\Z")
"""Modules that are given a manifest, a compose file or chart values."""


def is_ansible(elements: list[Node]) -> bool:
    """Plays or tasks."""
    return any(
        item.has("hosts") or item.has("tasks")
        or (item.has("name") and any(_SHELL.match(key) for key in item.names()))
        or any(module.match(key) for module in (_CONTAINER, _WRITTEN, _DEFINED) for key in item.names())
        or any(_TEMPLATE.match(key) and value.has("src") for key, _, value in item.pairs())
        or item.has("block")
        for item in elements
    )  # fmt: skip


def read(context: Context, doc: Node) -> None:
    """All tasks of a playbook or a role's task file."""
    variables = role_defaults(context)
    for item in doc.elements():
        local = variables | _literals(item.get("vars"))
        for file in item.get("vars_files").elements():
            found = context.tree.neighbour(file.s, context.path)
            with suppress(Malformed):
                for part in documents(found[1]) if found is not None else []:
                    local |= _literals(part)
        _tasks(context, item, local)


def _tasks(context: Context, item: Node, variables: dict[str, str]) -> None:
    for key in _BLOCKS:
        for task in item.get(key).elements():
            _tasks(context, task, variables | _literals(task.get("vars")))
    for key, _, value in item.pairs():
        if _CONTAINER.match(key) and value.is_map:
            _container(context, value, variables)
        elif _SHELL.match(key):
            _shell(context, value, item, variables)
        elif _WRITTEN.match(key) and value.is_map:
            _written(context, value, variables)
        elif _TEMPLATE.match(key) and value.is_map:
            _template(context, value, variables)
        elif _DEFINED.match(key) and value.is_map:
            _defined(context, value, variables)


def role_defaults(context: Context) -> dict[str, str]:
    """Literal variables of the role a file belongs to, and of `group_vars/all` above it."""
    parts = PurePosixPath(context.path).parts
    inside = [i for i, part in enumerate(parts) if part in ("tasks", "handlers", "templates")]
    role = [*parts[: inside[-1]]] if inside else None
    names = ["/".join([*parts[:size], "group_vars", "all"]) for size in range(len(parts))]
    names = [path for name in names for path in (name, f"{name}/main", f"{name}/vars")]
    if role is not None:
        names = ["/".join([*role, "defaults/main"]), *names, "/".join([*role, "vars/main"])]
    out: dict[str, str] = {}
    for name in names:
        for extension in ("yml", "yaml"):
            text = context.tree.read(f"{name}.{extension}")
            with suppress(Malformed):
                for doc in documents(text) if text is not None else []:
                    out.update(_literals(doc))
    return out


def _literals(node: Node) -> dict[str, str]:
    return {name: value.s for name, _, value in node.pairs() if value.is_scalar}


def _container(context: Context, node: Node, variables: dict[str, str]) -> None:
    env = read_env(node.get("env"))
    for name, value in list(env.values.items()):
        env.values[name] = filled(value, variables)
    image = filled(node.get("image").text, variables)
    command = node.get("command")
    if command.is_list:
        words = [filled(word, variables) for word in words_of(command)]
    else:
        words = split_string(filled(command.text, variables))
    entry = node.get("entrypoint")
    entry_words = [filled(word, variables) for word in words_of(entry)] or split_string(
        filled(entry.text, variables)
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
            value = filled(node.get(key).text, variables)
            if value.s and value.known:
                host.memory_limit = binary_size(value.s)
        shm = filled(node.get("shm_size").text, variables)
        if shm.s:
            host.shm = binary_size(shm.s) if shm.known else None
            host.shm_line = node.key_line("shm_size")
            host.shm_provided = host.shm is None
        mode = node.get("ipc_mode").s or node.get("ipc").s
        if mode == "host":
            host.ipc_host = True
        for request in node.get("device_requests").elements():
            ids = [item.s for item in request.get("device_ids").elements()]
            count = filled(request.get("count").text, variables).s
            if ids:
                host.gpu_ids = host.share_ids = ids
                host.gpus = len(ids)
            elif is_count(count):
                host.gpus = int(count)
        host.share_unit = context.path
    context.drafts.extend(drafts)


def _written(context: Context, node: Node, variables: dict[str, str]) -> None:
    """The file that a task writes, read as one of its name."""
    body = filled(node.get("content").text or node.get("block").text, variables)
    target = filled(node.get("dest").text or node.get("path").text, variables)
    if body.s.strip() and target.s:
        reader = context.reader()
        reader.files = [(target.s, body)]
        context.absorb(reader)


def _template(context: Context, node: Node, variables: dict[str, str]) -> None:
    """A template of the tree with the variables of the task that writes it."""
    source = filled(node.get("src").text, variables).s
    places = (f"templates/{source}", f"../templates/{source}", source)
    near = [context.tree.neighbour(place, context.path) for place in places if source]
    found = next((item for item in near if item is not None), None)
    if found is None:
        return
    path, text = found
    context.tree.consumed.add(path)
    reader = context.reader()
    target = filled(node.get("dest").text, variables).s
    name = path.removesuffix(".j2") if target.endswith("/") or HOLE in target else target
    reader.files = [(name or path, filled(text.standing_in(path), variables))]
    context.absorb(reader)


def _defined(context: Context, node: Node, variables: dict[str, str]) -> None:
    """Objects of Kubernetes, a compose project or chart values inside a task."""
    from kvbudget.gate.readers import values

    given = [
        node.get(key)
        for key in ("definition", "resource_definition", "values", "release_values")
        if node.has(key)
    ]
    for item in given:
        docs = item.elements() if item.is_list else [item]
        if item.is_scalar:
            with suppress(Malformed):
                docs = documents(filled(item.text, variables))
        docs = [_filled(doc, variables) for doc in docs]
        if node.has("chart_ref"):
            for doc in docs:
                values.read(context, doc)
        else:
            context.read(docs)


def _filled(node: Node, variables: dict[str, str]) -> Node:
    """A tree whose scalars have their expressions resolved."""
    if node.is_map:
        items = [(key, _filled(value, variables)) for key, value in node.items()]
        return Node.mapping(items, node.line)
    if node.is_list:
        return Node.sequence([_filled(item, variables) for item in node.elements()], node.line)
    text = filled(node.text, variables)
    plain = node.plain or "{{" in node.s
    return Node.scalar(text, node.line, plain=plain) if text is not node.text else node


def _shell(context: Context, value: Node, task: Node, variables: dict[str, str]) -> None:
    from kvbudget.gate.shell_words import Scope

    text = value.get("cmd").text if value.is_map else value.text
    if value.is_map and value.get("argv").is_list:
        words = [filled(word, variables) for word in words_of(value.get("argv"))]
        drafts = context.reader().words(words, {})
    else:
        if not text.s:
            return
        env = read_env(task.get("environment"))
        scope = Scope()
        for name, item in env.values.items():
            scope.set(name, [filled(item, variables)], exported=True)
        reader = context.reader()
        body = filled(text, variables)
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
