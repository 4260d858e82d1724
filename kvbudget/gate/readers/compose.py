"""docker-compose: services with command, entrypoint, environment, devices and limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.gate.containers import add_cdi, add_mount, env_file
from kvbudget.gate.draft import Draft, gpu_ids
from kvbudget.gate.nodes import EMPTY, Malformed, Node, documents, merged, words_of
from kvbudget.gate.readers.variables import Env, finish_env, split_string
from kvbudget.gate.shell_words import Scope, Words
from kvbudget.gate.source import HOLE, Text, file_of
from kvbudget.gate.units import binary_size, is_count

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

MAX_EXTENDS = 6
_VARIABLE = re.compile(r"\$\$|\$\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}|\$([A-Za-z_]\w*)")


def is_compose(doc: Node) -> bool:
    """A map `services` whose values are containers."""
    services = doc.get("services")
    return services.is_map and any(
        value.is_map
        and any(value.has(key) for key in ("image", "command", "build", "entrypoint", "extends"))
        for _, _, value in services.pairs()
    )


def read(context: Context, doc: Node) -> None:
    """All services of one compose file."""
    outside = dict(context.outside)
    found = context.tree.neighbour(".env", context.path)
    scope = Scope(outside=outside)
    if found is not None:
        for name, value in env_file(found[1]):
            scope.variables.setdefault(name, [value])
    for _, _, service in doc.get("services").pairs():
        if service.is_map:
            whole = _extended(context, service, doc, 0)
            context.drafts.extend(_service(context, whole, doc, scope))


def _extended(context: Context, service: Node, doc: Node, depth: int) -> Node:
    """A service over the one it extends, key by key (maps of one file are joined)."""
    said = service.get("extends")
    name = said.s or said.get("service").s
    if not name or depth > MAX_EXTENDS:
        return service
    if said.get("file").s not in ("", context.name):
        found = context.tree.neighbour(said.get("file").s, context.path)
        try:
            docs = documents(found[1].standing_in(found[0])) if found is not None else []
        except Malformed:
            docs = []
        doc = docs[0] if docs else EMPTY
    base = doc.get("services", name)
    if not base.is_map or base is service:
        return service
    return merged(_extended(context, base, doc, depth + 1), service)


def _interpolate(text: Text, scope: Scope) -> Text:
    lookup = Words(scope)

    def value(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        return lookup.lookup(match.group(1) or match.group(2) or "", 0)

    return text.sub(_VARIABLE, value) if "$" in text.s else text


def _environment(context: Context, service: Node, scope: Scope) -> Env:
    env = Env()
    files = service.get("env_file")
    entries = files.elements() if files.is_list else [files]
    for entry in entries:
        path = entry.get("path").s if entry.is_map else entry.s
        if not path:
            continue
        found = context.tree.neighbour(path, context.path)
        if found is not None:
            line = entry.get("path").line if entry.is_map else entry.line
            for name, value in env_file(found[1]):
                env.put(name, value.moved(line), line)
    node = service.get("environment")
    if node.is_map:
        for name, line, item in node.pairs():
            env.put(name, _interpolate(item.text, scope), line)
    for item in node.elements():
        name, sep, _ = item.s.partition("=")
        value = item.text.cut(len(name) + 1) if sep else Text.on(HOLE, item.text.line)
        if not sep and name in scope.variables:
            value = scope.variables[name][0]
        env.put(name, _interpolate(value, scope), item.text.line)
    return env


def _words(node: Node, scope: Scope) -> list[Text]:
    if node.is_list:
        return [_interpolate(word, scope) for word in words_of(node)]
    if node.s:
        return split_string(_interpolate(node.text, scope))
    return []


def _service(context: Context, service: Node, doc: Node, scope: Scope) -> list[Draft]:
    env = _environment(context, service, scope)
    image = _interpolate(service.get("image").text, scope)
    entrypoint = _words(service.get("entrypoint"), scope)
    command = _words(service.get("command"), scope)
    reader = context.reader()
    drafts = reader.image_command(
        image if image.s else None, entrypoint or None, command, dict(env.values)
    )
    context.absorb(reader)
    for draft in drafts:
        if not image.s and not draft.line:
            draft.line = service.key_line("command")
        if file_of(draft.line) is not None:  # of a file that this one extends
            draft.line = service.key_line("extends") or draft.line
        finish_env(draft, env)
        _host(draft, service, scope)
        project = doc.get("name").s or context.path.rsplit("/", 1)[0]
        profiles = ",".join(item.s for item in service.get("profiles").elements())
        draft.host.share_unit = f"compose:{project}:{profiles}"
        draft.host.container = True
        replicas = service.get("deploy", "replicas").s
        if replicas == "0":
            draft.host.share_unit = None
    return drafts


def _host(draft: Draft, service: Node, scope: Scope) -> None:
    host = draft.host
    for key in ("mem_limit",):
        value = _interpolate(service.get(key).text, scope)
        if value.s and value.known:
            host.memory_limit = binary_size(value.s)
    limit = _interpolate(service.get("deploy", "resources", "limits", "memory").text, scope)
    if limit.s and limit.known:
        host.memory_limit = binary_size(limit.s)
    shm = _interpolate(service.get("shm_size").text, scope)
    if shm.s:
        host.shm = binary_size(shm.s) if shm.known else None
        host.shm_line = service.key_line("shm_size")
        host.shm_provided = host.shm is None
    _tmpfs(draft, service)
    for volume in service.get("volumes").elements():
        source = volume.get("source").text if volume.is_map else volume.text
        target = f":{volume.get('target').s}" if volume.is_map else ""
        add_mount(_interpolate(source, scope).s + target, draft)
    if service.get("ipc").s == "host":
        host.ipc_host = True
    requests = service.get("deploy", "resources", "reservations", "devices").elements()
    gpus = service.get("gpus")
    if gpus.is_list:
        requests = [*requests, *gpus.elements()]
    for device in requests:
        ids = [_interpolate(item.text, scope).s for item in device.get("device_ids").elements()]
        count = _interpolate(device.get("count").text, scope).s
        cdi = [part for part in ids if "=" in part]
        if cdi:
            for part in cdi:
                add_cdi(part, draft)
        elif ids and not any(HOLE in part for part in ids):
            host.gpu_ids = host.share_ids = gpu_ids(",".join(ids))
            host.gpus = len(ids)
        elif is_count(count):
            host.gpus = int(count)
            host.count_shares = True
    for device in service.get("devices").elements():
        if "nvidia.com/gpu=" in device.s:
            add_cdi(device.s, draft)


def _tmpfs(draft: Draft, service: Node) -> None:
    node = service.get("tmpfs")
    for entry in [*node.elements(), node]:
        if entry.s.startswith("/dev/shm"):
            match = re.search(r"size=(\w+)", entry.s)
            draft.host.shm = binary_size(match.group(1)) if match else None
            draft.host.shm_line = entry.line
            draft.host.shm_provided = draft.host.shm is None
    for volume in service.get("volumes").elements():
        target = volume.get("target").s if volume.is_map else ([*volume.s.split(":"), "", ""])[1]
        if target == "/dev/shm":
            size = volume.get("tmpfs", "size").s
            draft.host.shm = binary_size(size) if size else None
            draft.host.shm_provided = draft.host.shm is None
