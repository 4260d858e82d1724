"""Helm values: vLLM production-stack, llm-d modelservice, and charts with image/args/env maps."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.draft import Draft, Given, Host
from kvbudget.gate.knowledge import engine
from kvbudget.gate.nodes import EMPTY, Node
from kvbudget.gate.readers import pods
from kvbudget.gate.readers.variables import Env, finish_env, read_env, word_list
from kvbudget.gate.source import Text
from kvbudget.gate.units import is_count, quantity

if TYPE_CHECKING:
    from kvbudget.gate.context import Context


def off(node: Node) -> bool:
    """`enabled: false` or `create: false`."""
    return node.get("enabled").s.lower() == "false" or node.get("create").s.lower() == "false"


def read(context: Context, doc: Node) -> None:
    """Values of one chart, or of a chart of charts."""
    _visit(context, doc, doc, 0, has_templates(context))


def has_templates(context: Context) -> bool:
    """True beside a Chart.yaml with templates: these say what the values start."""
    folder = PurePosixPath(context.path).parent
    if context.tree.read(str(folder / "Chart.yaml")) is None:
        return False
    inside = str(folder / "templates") + "/"
    return any(found.path.startswith(inside) for found in context.tree.files)


def _visit(context: Context, node: Node, root: Node, depth: int, templated: bool) -> None:
    if depth > 12 or off(node):
        return
    if node.get("modelSpec").is_list:
        for spec in node.get("modelSpec").elements():
            if not off(spec):
                _production_stack(context, spec)
        return
    if node.get("modelArtifacts").is_map and (
        node.get("decode").is_map or node.get("prefill").is_map
    ):
        _llm_d(context, node)
        return
    if node.is_map and node.has("kind") and node.has("apiVersion"):
        context.read([node])
        return
    if not templated and _container(context, node, root):
        return
    if node.is_map and node.get("containers").is_list:
        context.drafts.extend(pods.pod_drafts(context, node))
        return
    for child in _children(node):
        _visit(context, child, root, depth + 1, templated)


def _children(node: Node) -> list[Node]:
    if node.is_map:
        return [value for _, _, value in node.pairs() if value.kind != "scalar"]
    return [item for item in node.elements() if item.kind != "scalar"]


def _field(key: str) -> str:
    """`gpuMemoryUtilization`, `enableLoRA` -> the field they spell; the key where none does."""
    squeezed = re.sub(r"[-_]", "", key).lower()
    options = engine("vllm").options
    return next((name for name in options if name.replace("_", "") == squeezed), key)


def _production_stack(context: Context, spec: Node) -> None:
    config = spec.get("vllmConfig")
    line = spec.key_line("vllmConfig") or spec.key_line("repository") or spec.line
    if not config.is_map and not spec.has("repository") and not spec.has("image"):
        return
    draft = Draft("vllm", line)
    known = engine("vllm").options
    for key, key_line, value in config.pairs():
        name = _field(key)
        if name == "v1" or name == "v0":
            text = value.text
            if text.s and name == "v1":
                draft.set_env("VLLM_USE_V1", text, key_line)
            continue
        if name == "extraArgs":
            draft.words = word_list(value, Env())
        elif name in known:
            draft.given.append(Given(name, value.value(), key_line, key))
    repository, tag = spec.get("repository").text, spec.get("tag").text
    if repository.s:
        draft.image = Text.join([repository, Text.on(":", tag.line), tag]) if tag.s else repository
        draft.version_line = tag.line if tag.s else repository.line
    elif spec.get("image").s:
        draft.image = spec.get("image").text
        draft.image_line = draft.line = draft.image.line
    draft.model_hint = spec.get("modelURL").text
    env = read_env(spec.get("env"))
    for name, said in env.values.items():
        draft.set_env(name, said, env.lines[name])
    cache = spec.get("lmcacheConfig")
    if cache.get("enabled").s.lower() == "true":
        draft.lmcache = True
        size = cache.get("cpuOffloadingBufferSize").text
        if size.s:
            draft.set_env(
                "LMCACHE_MAX_LOCAL_CPU_SIZE", size, cache.key_line("cpuOffloadingBufferSize")
            )
    host = draft.host
    count = spec.get("requestGPU").s
    host.gpus = int(count) if is_count(count) else None
    host.memory_limit = quantity(spec.get("limitMemory").s or None)
    shm = spec.get("shmSize").s
    host.shm = quantity(shm) if shm else None
    host.shm_line = spec.key_line("shmSize")
    host.container = host.shm_provided = True
    host.gpu_type = pods.selector_card(spec) or _node_selector_terms(spec)
    context.drafts.append(draft)


def _node_selector_terms(spec: Node) -> str | None:
    from kvbudget.gate.hardware import card

    for term in spec.get("nodeSelectorTerms").elements():
        for rule in term.get("matchExpressions").elements():
            options = rule.get("values").elements()
            if len(options) == 1 and rule.get("key").s in pods._LABELS:
                return card(options[0].s)
    return None


def _llm_d(context: Context, node: Node) -> None:
    for role in ("decode", "prefill"):
        pool = node.get(role)
        if not pool.is_map or off(pool):
            continue
        parallel = pool.get("parallelism")
        containers = pool.get("containers").elements()
        for container in containers:
            env = read_env(container.get("env"))
            command = container.get("modelCommand").s
            args = word_list(container.get("args"), env)
            image = pods.image_text(container.get("image"))
            if command in ("vllmServe", "imageDefault"):
                name = pods.known_engine(image, args) or "vllm"
                line = container.key_line("modelCommand") if command == "vllmServe" else image.line
                draft = Draft(name, line or container.key_line("image"), words=args)
                for key, value in env.values.items():
                    draft.set_env(key, value, env.lines[key])
                drafts = [draft]
                draft.image, draft.image_line = (image, image.line) if image.s else (None, 0)
                pods.host_of(draft.host, container, pool, containers)
            else:
                drafts = pods.container_drafts(context, container, pool, containers)
            for draft in drafts:
                _parallel(draft, parallel)
                draft.model_hint = node.get("modelArtifacts", "uri").text
                draft.host.shm_provided = draft.host.shm_provided or (
                    draft.host.shm is None and _has_shm(pool, container)
                )
            context.drafts.extend(drafts)


def _has_shm(pool: Node, container: Node) -> bool:
    return (
        any(m.get("mountPath").s == "/dev/shm" for m in container.get("volumeMounts").elements())
        or pool.get("shm").is_map
    )


def _parallel(draft: Draft, parallel: Node) -> None:
    size = parallel.get("tensor")
    key = "tensor"
    if not size.present:
        size, key = parallel.get("tensorParallelism"), "tensorParallelism"
    if size.present:
        draft.given.append(Given("tensor_parallel_size", size.value(), size.line, key))
        if draft.host.gpus is None and is_count(size.s):
            local = parallel.get("dataLocal").s or parallel.get("data").s or "1"
            draft.host.gpus = int(size.s) * (int(local) if is_count(local) else 1)
    data = parallel.get("data")
    if data.present:
        draft.given.append(Given("data_parallel_size", data.value(), data.line, "data"))


def _app_template(root: Node, host: Host) -> None:
    """app-template's `persistence:` mounted at /dev/shm, and its options of the pod."""
    options = root.get("defaultPodOptions")
    host.gpu_type = host.gpu_type or pods.selector_card(options)
    host.ipc_host = host.ipc_host or options.get("hostIPC").s == "true"
    for name, _, volume in root.get("persistence").pairs():
        mounts = volume.get("globalMounts").elements()
        for _, _, controller in volume.get("advancedMounts").pairs():
            for _, _, listed in controller.pairs():
                mounts = [*mounts, *listed.elements()]
        paths = [mount.get("path").s.rstrip("/") for mount in mounts] or [f"/{name}"]
        if off(volume) or "/dev/shm" not in paths:
            continue
        size = quantity(volume.get("sizeLimit").s or None)
        if volume.get("type").s == "emptyDir" and volume.get("medium").s == "Memory" and size:
            host.shm, host.shm_line = size, volume.key_line("sizeLimit")
            host.shm_tmpfs = (size, host.shm_line)
        else:
            host.shm_provided = True


def _container(context: Context, node: Node, root: Node) -> bool:
    """A map with an image and words: the container of a home-made chart."""
    if not node.is_map:
        return False
    image_node = node.get("image")
    image = pods.image_text(image_node)
    holder = node
    if not image.s and node.get("repository").s and (node.has("tag") or node.has("args")):
        image = pods.image_text(node)
        image_node = node
    if not image.s:
        return False
    command_node = holder.get("command")
    args_node = EMPTY
    for key in ("args", "extraArgs", "commandArgs", "vllmArgs", "engineArgs", "arguments"):
        if holder.has(key):
            args_node = holder.get(key)
            break
    if not command_node.present and image_node.get("command").present:
        command_node = image_node.get("command")
    if not args_node.present and image_node.get("args").present:
        args_node = image_node.get("args")
    if not command_node.present and not args_node.present:
        return False
    env = read_env(holder.get("env"), read_env(holder.get("extraEnv")))
    command, args = word_list(command_node, env), word_list(args_node, env)
    reader = context.reader()
    drafts = reader.image_command(image, command or None, args, dict(env.values))
    context.absorb(reader)
    split = image_node.is_map
    for draft in drafts:
        finish_env(draft, env)
        if split and draft.line == image.line:
            draft.line = holder.key_line("args") or holder.key_line("extraArgs") or args_node.line
        if split:
            draft.version_line = (
                image_node.get("tag").text.line or image_node.get("repository").text.line
            )
        pods.host_of(draft.host, holder, holder, [holder])
        _app_template(root, draft.host)
        if not draft.host.memory_limit:
            limits = root.get("resources", "limits")
            if limits.has("memory"):
                draft.host.memory_limit = quantity(limits.get("memory").s)
    context.drafts.extend(drafts)
    return bool(drafts)
