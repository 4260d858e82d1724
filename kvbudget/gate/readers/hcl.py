"""Nomad jobs and Terraform resources (Kubernetes, Helm, Docker, ECS, start-up scripts)."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from kvbudget.gate.containers import env_file
from kvbudget.gate.hcl_parse import parse, variables
from kvbudget.gate.nodes import Malformed, Node, documents, words_of
from kvbudget.gate.program import share
from kvbudget.gate.readers import pods
from kvbudget.gate.readers.jinja import filled
from kvbudget.gate.readers.variables import Env, finish_env, read_env
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.source import HOLE, Text
from kvbudget.gate.units import binary_size, is_count

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.hcl_block import Block

_MIB = 1 << 20
_RUNTIME = re.compile(r"\$\{([^{}]*)\}")
_MANIFEST = re.compile(r"^\s*apiVersion:", re.M)
_ENGINE = re.compile(r"vllm|sglang")


def read(context: Context) -> None:
    """One file; variable defaults of the folder's other .tf files count too."""
    outside: dict[str, Node] = {}
    if context.name.endswith(".tf"):
        folder = context.path.rsplit("/", 1)[0] if "/" in context.path else ""
        for found in context.tree.files:
            here = found.path.rsplit("/", 1)[0] if "/" in found.path else ""
            if here == folder and found.path.endswith(".tf") and found.path != context.path:
                text = context.tree.read(found.path)
                if text is not None:
                    outside.update(variables(text))
        if not outside:
            for name in ("variables.tf", "vars.tf"):
                near = context.tree.neighbour(name, context.path)
                if near is not None and near[0] != context.path:
                    outside.update(variables(near[1]))
    root = parse(context.text, outside)
    for block in root.walk():
        if block.type == "task":
            _task(context, block)
        elif block.type == "resource" and block.labels:
            _resource(context, block)


# ---- Nomad -----------------------------------------------------------------------------------
def _task(context: Context, task: Block) -> None:
    env = Env()
    for block in task.inner("env"):
        for name, (line, node) in block.attrs.items():
            env.put(name, node.text, line)
    node = task.attr("env")
    if node.is_map:
        env = read_env(node, env)
    for template in task.inner("template"):
        if template.attr("env").s == "true":
            for name, value in env_file(filled(template.attr("data").text, {})):
                env.put(name, value, value.line)
    for config in task.inner("config"):
        driver = task.attr("driver").s
        image = _runtime(config.attr("image").text, env)
        args = [_runtime(word, env) for word in words_of(config.attr("args"))]
        command = _runtime(config.attr("command").text, env)
        entry = words_of(config.attr("entrypoint")) or None
        if command.s:
            args = [command, *args]
        reader = context.reader()
        if image.s:
            drafts = reader.image_command(image, entry, args, dict(env.values))
        else:
            drafts = reader.words(args, dict(env.values)) if args else []
        context.absorb(reader)
        for draft in drafts:
            finish_env(draft, env)
            host = draft.host
            host.container = bool(image.s) or driver in ("docker", "podman")
            shm = config.attr("shm_size")
            if shm.s and shm.text.known:
                host.shm = int(shm.s) if is_count(shm.s) else binary_size(shm.s)
                host.shm_line = config.attr_line("shm_size")
            if config.attr("ipc_mode").s == "host":
                host.ipc_host = True
            for resources in task.inner("resources"):
                size = resources.attr("memory_max").s or resources.attr("memory").s
                if is_count(size):
                    host.memory_limit = int(size) * _MIB
                for device in resources.inner("device"):
                    if device.labels and "gpu" in device.labels[0]:
                        count = device.attr("count").s or "1"
                        host.gpus = int(count) if is_count(count) else None
            host.share_unit = f"{context.path}#{task.line}"
        context.drafts.extend(drafts)


def _runtime(text: Text, env: Env) -> Text:
    """`${NAME}` as Nomad fills it in when it starts the task."""
    return text.sub(_RUNTIME, lambda m: env.values[m[1]].s if m[1] in env.values else HOLE)


# ---- Terraform -------------------------------------------------------------------------------
def _resource(context: Context, block: Block) -> None:
    kind = block.labels[0]
    if kind.startswith("kubernetes_manifest"):
        node = block.attr("manifest")
        if node.is_map:
            context.read([node])
        else:
            _script(context, node.text)
    elif kind.startswith(("kubernetes_", "google_cloud_run_")):
        for spec in block.walk():
            if spec.inner("container") or spec.inner("containers"):
                context.drafts.extend(pods.pod_drafts(context, _pod(spec)))
    elif kind == "helm_release":
        _helm(context, block)
    elif kind == "docker_container":
        _docker(context, block)
    elif kind == "aws_ecs_task_definition":
        _ecs(context, block)
    else:
        for inner in block.walk():
            for _, node in inner.attrs.values():
                for item in node.walk():
                    if item.is_scalar:
                        _script(context, item.text)
                    for _, _, value in item.pairs():
                        if value.is_scalar:
                            _script(context, value.text)


def _script(context: Context, text: Text) -> None:
    if "\n" not in text.s or not _ENGINE.search(text.s):
        return
    if _MANIFEST.search(text.s):
        with suppress(Malformed):
            context.read(documents(text), embedded=True)
        return
    reader = context.reader()
    try:
        drafts = reader.script(text, depth=1)
    except UnclosedQuote:
        return
    share(drafts, context.path)
    context.drafts.extend(drafts)
    context.absorb(reader)


_NAMES = {
    "volume_mount": "volumeMounts", "volume": "volumes", "empty_dir": "emptyDir",
    "size_limit": "sizeLimit", "mount_path": "mountPath", "node_selector": "nodeSelector",
    "container": "containers", "host_ipc": "hostIPC", "value_from": "valueFrom",
    "init_container": "initContainers",
}  # fmt: skip
_MANY = {"volume_mount", "volume", "container", "containers", "env", "init_container"}


def _pod(block: Block) -> Node:
    """snake_case blocks -> the pod spec they stand for."""
    items: list[tuple[Text, Node]] = []
    for key, (line, node) in block.attrs.items():
        items.append((Text.on(_NAMES.get(key, key), line), node))
    grouped: dict[str, list[Block]] = {}
    for inner in block.blocks:
        grouped.setdefault(inner.type, []).append(inner)
    for key, blocks in grouped.items():
        name = Text.on(_NAMES.get(key, key), blocks[0].line)
        if key in _MANY:
            items.append((name, Node.sequence([_pod(b) for b in blocks], blocks[0].line)))
        else:
            items.append((name, _pod(blocks[0])))
    return Node.mapping(items, block.line)


def _helm(context: Context, block: Block) -> None:
    from kvbudget.gate.readers import values

    for item in block.attr("values").elements():
        if item.is_map:
            values.read(context, item)
        elif (item.text.s.strip() and item.text.known) or item.text.s.strip():
            try:
                for doc in documents(item.text):
                    values.read(context, doc)
            except Malformed:
                continue


def _docker(context: Context, block: Block) -> None:
    env = read_env(block.attr("env"))
    image = block.attr("image").text
    entry = words_of(block.attr("entrypoint")) or None
    reader = context.reader()
    drafts = reader.image_command(
        image if image.s else None, entry, words_of(block.attr("command")), dict(env.values)
    )
    context.absorb(reader)
    for draft in drafts:
        finish_env(draft, env)
        host = draft.host
        for key, field in (("memory", "memory_limit"), ("shm_size", "shm")):
            size = block.attr(key).s
            if is_count(size):
                setattr(host, field, int(size) * _MIB)
        host.shm_line = block.attr_line("shm_size")
        host.ipc_host = block.attr("ipc_mode").s == "host"
        gpus = block.attr("gpus").s
        host.gpus = int(gpus) if is_count(gpus) else None
        host.share_unit = context.path
    context.drafts.extend(drafts)


def _ecs(context: Context, block: Block) -> None:
    from kvbudget.gate.readers import ecs

    definitions = block.attr("container_definitions")
    if definitions.is_scalar and definitions.text.s.strip().startswith("["):
        try:
            docs = documents(definitions.text)
        except Malformed:
            return
        definitions = docs[0] if docs else definitions
    if not definitions.is_list:
        return
    items = [(Text.on("containerDefinitions", definitions.line), definitions)]
    for key in ("memory", "ipc_mode"):
        if key in block.attrs:
            name = {"memory": "memory", "ipc_mode": "ipcMode"}[key]
            items.append((Text.on(name, block.attr_line(key)), block.attr(key)))
    ecs.read(context, Node.mapping(items, block.line))
