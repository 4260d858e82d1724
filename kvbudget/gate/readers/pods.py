"""Pods: containers of Kubernetes objects and of everything that embeds a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.gate.config_map import named
from kvbudget.gate.engines import image_engine
from kvbudget.gate.hardware import card
from kvbudget.gate.nodes import EMPTY, Node
from kvbudget.gate.readers import config_maps
from kvbudget.gate.readers.config_maps import container_env
from kvbudget.gate.readers.variables import Env, finish_env, word_list
from kvbudget.gate.source import Text
from kvbudget.gate.units import is_count, quantity

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.draft import Draft, Host

_GPU_KEYS = ("nvidia.com/gpu", "amd.com/gpu", "gpu", "nvidia.com/gpu.shared")
_LABELS = (
    "cloud.google.com/gke-accelerator", "nvidia.com/gpu.product", "gpu.nvidia.com/model",
    "nvidia.com/gpu-product", "karpenter.k8s.aws/instance-gpu-name", "accelerator",
    "k8s.amazonaws.com/accelerator", "gpu.nvidia.com/class", "run.googleapis.com/accelerator",
)  # fmt: skip


def limit(node: Node, *names: str) -> Node:
    """resources.limits of one name."""
    limits = node.get("resources", "limits")
    for name in names:
        if limits.has(name):
            return limits.get(name)
    return EMPTY


def gpu_count(node: Node) -> int | None:
    """Cards of resources.limits (requests if there are no limits)."""
    found = limit(node, *_GPU_KEYS)
    if not found.present:
        requests = node.get("resources", "requests")
        found = next((requests.get(name) for name in _GPU_KEYS if requests.has(name)), EMPTY)
    return int(found.s) if is_count(found.s) else None


def selector_card(pod: Node) -> str | None:
    """Card named by the node selector or a required node affinity with one value."""
    for key, _, value in pod.get("nodeSelector").pairs():
        if key in _LABELS:
            return card(value.s)
    required = pod.get("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in required.get("nodeSelectorTerms").elements():
        for rule in term.get("matchExpressions").elements():
            options = rule.get("values").elements()
            if (
                rule.get("key").s in _LABELS
                and rule.get("operator").s == "In"
                and len(options) == 1
            ):
                return card(options[0].s)
    return None


def shared_memory(pod: Node, container: Node, containers: list[Node], host: Host) -> None:
    """Size of /dev/shm where a Memory emptyDir (or another volume) is mounted there."""
    name = next(
        (m.get("name").s for m in container.get("volumeMounts").elements()
         if m.get("mountPath").s.rstrip("/") == "/dev/shm"), None,
    )  # fmt: skip
    if name is None:
        return
    for volume in pod.get("volumes").elements():
        if volume.get("name").s != name:
            continue
        if not volume.has("emptyDir"):
            host.shm_provided = True
            return
        empty = volume.get("emptyDir")
        if empty.get("medium").s != "Memory":
            host.shm_provided = True
            return
        size = empty.get("sizeLimit")
        if size.present:
            host.shm = quantity(size.s)
            host.shm_line = empty.key_line("sizeLimit")
            if host.shm is not None:
                host.shm_tmpfs = (host.shm, host.shm_line)
            else:
                host.shm_provided = True
            return
        limits = [quantity(limit(item, "memory").s or None) for item in containers]
        host.shm_provided = True
        host.shm = None if any(value is None for value in limits) else sum(v for v in limits if v)
        return
    host.shm_provided = True  # declared elsewhere: size unknown


def pod_drafts(
    context: Context,
    pod: Node,
    *,
    env: Env | None = None,
    extra: dict[str, str] | None = None,
) -> list[Draft]:
    """All engine processes of a pod spec."""
    containers = pod.get("containers").elements()
    out: list[Draft] = []
    base = env.copy() if env else Env()
    for name, value in (extra or {}).items():
        base.put(name, Text.on(value, pod.line), pod.line)
    for container in containers:
        drafts = container_drafts(context, container, pod, containers, base)
        for draft in drafts:
            draft.host.share_unit = draft.host.share_unit or f"{context.path}#pod{pod.line}"
            for hidden in extra or {}:
                if hidden in draft.env and draft.env[hidden].line == pod.line:
                    del draft.env[hidden]
        out += drafts
    return out


def container_drafts(
    context: Context, container: Node, pod: Node, siblings: list[Node], base: Env | None = None
) -> list[Draft]:
    """Engine processes of one container."""
    env = container_env(context, container, base)
    command = word_list(container.get("command"), env)
    args = word_list(container.get("args"), env)
    image = image_text(container.get("image"))
    files = config_maps.mounted(context, container, pod)
    context.tree.consumed.update(file.mark for file in named(files, [*command, *args]))
    reader = context.reader()
    drafts = reader.image_command(
        image if image.s else None, command or None, args, dict(env.values), depth=0
    )
    context.absorb(reader)
    for draft in drafts:
        if (not image.s and draft.line == 0) or (
            not image.s and not command and args and draft.line == args[0].line
        ):
            draft.line = container.key_line("args") or draft.line
        finish_env(draft, env)
        host_of(draft.host, container, pod, siblings)
        draft.files = files
        if not image.s:  # a patch: volumes and limits stand in its base
            draft.host.shm_provided = True
    return drafts


def host_of(host: Host, container: Node, pod: Node, siblings: list[Node]) -> None:
    """Cards, limits and /dev/shm of a container in its pod."""
    host.container = True
    count = gpu_count(container)
    if count is not None:
        host.gpus = count
    memory = limit(container, "memory")
    if memory.present and memory.text.known:
        host.memory_limit = quantity(memory.s)
    host.gpu_type = selector_card(pod) or host.gpu_type
    if pod.get("hostIPC").s == "true":
        host.ipc_host = True
    shared_memory(pod, container, siblings or [container], host)


def image_text(node: Node) -> Text:
    """`image:` as a string, or as repository/registry/tag/digest keys."""
    if node.is_scalar:
        return node.text
    repository = node.get("repository").text or node.get("name").text
    if not repository.s:
        return Text("", [])
    registry = node.get("registry").text
    parts = [repository]
    if registry.s:
        parts = [registry, Text.on("/", registry.line), repository]
    tag = node.get("tag").text
    if tag.s:
        parts += (
            [Text.on(":", tag.line), tag]
            if not tag.s.startswith("sha256:")
            else [Text.on("@", tag.line), tag]
        )
    digest = node.get("digest").text
    if digest.s:
        parts += [Text.on("@", digest.line), digest]
    return Text.join(parts)


def known_engine(image: Text, args: list[Text]) -> str | None:
    """Engine of an image or of its arguments."""
    return image_engine(image if image.s else None, args)
