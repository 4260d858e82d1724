"""Kubernetes objects: workloads, KServe, LeaderWorkerSet, KubeAI, KAITO, Dynamo, Flux, Argo CD."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kvbudget.gate.draft import Draft, Given
from kvbudget.gate.hardware import card, machine
from kvbudget.gate.knowledge import engine_names
from kvbudget.gate.nodes import EMPTY, Malformed, Node, documents
from kvbudget.gate.readers import config_maps, mounted, pods
from kvbudget.gate.readers.config_maps import container_env
from kvbudget.gate.readers.variables import read_env, split_string, word_list
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.source import Text
from kvbudget.gate.units import is_count, quantity

if TYPE_CHECKING:
    from kvbudget.gate.context import Context


def read_object(context: Context, obj: Node, objects: list[Node]) -> None:
    """One object of a manifest (objects: all of the file, for joins)."""
    kind = obj.get("kind").s
    before = len(context.drafts)
    context.objects = objects
    reader = _KINDS.get(kind, _workload)
    if kind == "List" or (kind.endswith("List") and obj.get("items").is_list):
        items = obj.get("items").elements()
        for item in items:
            read_object(context, item, items)
        return
    reader(context, obj, objects)
    annotations = {
        key: (value.s, line)
        for key, line, value in (
            *obj.get("metadata", "annotations").pairs(),
            *obj.get("spec", "template", "metadata", "annotations").pairs(),
        )
        if key.startswith("kvbudget.dev/")
    }
    for draft in context.drafts[before:]:
        draft.annotations.update(annotations)


_GROUP = (
    ("leaderWorkerTemplate", "size"), ("leaderWorkerPattern", "size"), ("multinode", "nodeCount"),
)  # fmt: skip
"""Where an object says how many pods serve as one process."""


def _workload(context: Context, obj: Node, objects: list[Node]) -> None:
    extra: dict[str, str] = {}
    nodes: dict[int, int] = {}
    for found in obj.walk():
        size = next((found.get(*path).s for path in _GROUP if found.get(*path).present), "")
        if is_count(size):
            extra["LWS_GROUP_SIZE"] = size
            nodes.update((id(below), int(size)) for below in found.walk())
        node = _pod(found)
        if node.get("containers").is_list:
            drafts = pods.pod_drafts(context, node, extra=extra)
            drafts += mounted.scripts(context, node)
            for draft in drafts:
                draft.host.nodes = nodes.get(id(found), 1)
            context.drafts.extend(drafts)


def _pod(node: Node) -> Node:
    """A pod with its native sidecars, or the template of a workflow, as containers of one pod."""
    kept = [
        item
        for item in node.get("initContainers").elements()
        if item.get("restartPolicy").s == "Always"
    ]
    kept += node.get("sidecars").elements()
    single = node.get("container")
    kept += [single] if single.is_map and single.has("image") else []
    if not kept:
        return node
    items = [(key, value) for key, value in node.items() if key.s != "containers"]
    containers = Node.sequence([*node.get("containers").elements(), *kept], node.line)
    return Node.mapping([*items, (Text.on("containers", node.line), containers)], node.line)


def _config_map(context: Context, obj: Node, objects: list[Node]) -> None:
    workspaces = [
        item for item in objects if item.get("kind").s in ("Workspace", "InferenceSet", "RAGEngine")
    ]
    name = obj.get("metadata", "name").s
    used = next((w for w in workspaces if _inference(w).get("config").s == name), EMPTY)
    pods_here = [item for item in objects if item.get("kind").s not in ("ConfigMap", "")]
    config = config_maps.of_object(obj, context.path)
    for key, text in config.data.items():
        if not text.s.strip() or any(mounted.run_by(item, key) for item in pods_here):
            continue
        mark = config.key_of(key)
        inner = context.inner(mark, text)
        if key == "inference_config.yaml":
            _kaito(context, text, used)
        elif key.endswith(".sh"):
            reader = context.reader()
            with suppress(UnclosedQuote):
                inner.drafts = reader.script(text, depth=1)
                context.absorb(reader)
        elif key.endswith((".yaml", ".yml")):
            with suppress(Malformed):
                inner.read(documents(text), embedded=True)
        for draft in inner.drafts:
            draft.config_base = mark
        context.drafts.extend(inner.drafts)


def _inference(obj: Node) -> Node:
    found = obj.get("inference")
    return found if found.is_map else obj.get("spec", "inference")


def _kaito(context: Context, text: Text, workspace: Node) -> None:
    try:
        docs = documents(text)
    except Malformed:
        return
    for doc in docs:
        settings = doc.get("vllm")
        if not settings.is_map:
            continue
        draft = Draft("vllm", doc.key_line("vllm"))
        for key, line, value in settings.pairs():
            draft.given.append(Given(key.replace("-", "_"), value.value(), line, key))
        if workspace is not EMPTY:
            preset = _inference(workspace).get("preset", "name")
            draft.model_hint = preset.text
            resource = workspace.get("resource")
            resource = resource if resource.is_map else workspace.get("spec", "resource")
            kind, count = machine(resource.get("instanceType").s)
            draft.host.gpu_type, draft.host.gpus = kind, count
        draft.host.shm_provided = True
        draft.host.container = True
        context.drafts.append(draft)


def _kubeai(context: Context, obj: Node, _objects: list[Node]) -> None:
    spec = obj.get("spec")
    engine = spec.get("engine").s.lower()
    if engine not in engine_names():
        return
    env = read_env(spec.get("env"))
    line = spec.key_line("image") or spec.key_line("engine")
    draft = Draft(engine, line, words=word_list(spec.get("args"), env))
    for name, value in env.values.items():
        draft.set_env(name, value, env.lines[name])
    if spec.get("image").s:
        draft.image, draft.image_line = spec.get("image").text, line
    draft.model_hint = spec.get("url").text
    profile, _, count = spec.get("resourceProfile").s.partition(":")
    draft.host.gpu_type = card(profile)
    draft.host.gpus = int(count) if is_count(count) else (1 if profile else None)
    draft.host.container = draft.host.shm_provided = True
    context.drafts.append(draft)


def _llm_service(context: Context, obj: Node, _objects: list[Node]) -> None:
    spec = obj.get("spec")
    pools = [(spec, spec.get("template")), (spec.get("prefill"), spec.get("prefill", "template"))]
    if spec.get("worker").is_map:
        pools.append((spec, spec.get("worker")))
    for pool, template in pools:
        containers = template.get("containers").elements()
        for container in containers:
            env = container_env(context, container)
            drafts = pods.container_drafts(context, container, template, containers)
            extra = env.values.get("VLLM_ADDITIONAL_ARGS")
            if not drafts and extra is None and container.get("name").s != "main":
                continue
            if not drafts:
                args = word_list(container.get("args"), env)
                line = (
                    container.key_line("image")
                    or (env.lines["VLLM_ADDITIONAL_ARGS"] if extra is not None else 0)
                    or container.key_line("args")
                    or pool.key_line("parallelism")
                )
                if not line:
                    continue
                draft = Draft("vllm", line, words=args)
                image = container.get("image").text
                if image.s:
                    draft.image, draft.image_line = image, image.line
                for name, value in env.values.items():
                    draft.set_env(name, value, env.lines[name])
                pods.host_of(draft.host, container, template, containers)
                drafts = [draft]
            for draft in drafts:
                if extra is not None:
                    draft.words = [*draft.words, *split_string(extra)]
                    if not container.has("image") and draft.line not in (
                        w.line for w in draft.words[:1]
                    ):
                        draft.line = env.lines["VLLM_ADDITIONAL_ARGS"]
                _parallelism(draft, pool.get("parallelism"))
                draft.model_hint = spec.get("model", "uri").text
                draft.host.shm_provided = True
            context.drafts.extend(drafts)


def _parallelism(draft: Draft, node: Node) -> None:
    for key, field in (
        ("tensor", "tensor_parallel_size"), ("pipeline", "pipeline_parallel_size"),
        ("data", "data_parallel_size"),
    ):  # fmt: skip
        if node.has(key):
            draft.given.append(Given(field, node.get(key).value(), node.key_line(key), key))


def _inference_service(context: Context, obj: Node, objects: list[Node]) -> None:
    predictor = obj.get("spec", "predictor")
    model = predictor.get("model")
    if model.is_map:
        env = container_env(context, model)
        args = word_list(model.get("args"), env)
        image = model.get("image").text
        fmt = model.get("modelFormat", "name").s.lower()
        named = f"{fmt} {model.get('runtime').s.lower()}"
        engine = pods.known_engine(image, args)
        for name in engine_names():
            if engine is None and name in named and (args or image.s):
                engine = name
        if engine is not None and (args or image.s):
            line = image.line if image.s else model.key_line("args")
            draft = Draft(engine, line, words=args)
            for name, value in env.values.items():
                draft.set_env(name, value, env.lines[name])
            if image.s:
                draft.image, draft.image_line = image, image.line
            draft.model_hint = model.get("storageUri").text
            pods.host_of(draft.host, model, predictor, [model])
            draft.host.share_unit = f"{context.path}#pod{predictor.line}"
            context.drafts.append(draft)
    _workload(context, obj, objects)


def _dynamo(context: Context, obj: Node, _objects: list[Node]) -> None:
    spec = obj.get("spec")
    shared = read_env(spec.get("envs"))
    services = [value for _, _, value in spec.get("services").pairs()]
    services += spec.get("components").elements()
    for service in services:
        template = service.get("podTemplate", "spec")
        extra = service.get("extraPodSpec")
        pod = template if template.is_map else extra
        main = extra.get("mainContainer")
        containers = [main] if main.is_map else pod.get("containers").elements()
        env = read_env(service.get("envs"), shared)
        for container in containers:
            drafts = pods.container_drafts(context, container, pod, containers, env)
            for draft in drafts:
                host = draft.host
                host.shm_provided = True
                limits = service.get("resources", "limits")
                count = next(
                    (limits.get(k).s for k in ("gpu", "nvidia.com/gpu") if limits.has(k)), ""
                )
                if is_count(count) and host.gpus is None:
                    host.gpus = int(count)
                if limits.has("memory") and host.memory_limit is None:
                    host.memory_limit = quantity(limits.get("memory").s)
                size = service.get("sharedMemory", "size")
                if not size.present:
                    size = service.get("sharedMemorySize")
                if size.present:
                    host.shm, host.shm_line = quantity(size.s), size.line
                count_nodes = service.get("multinode", "nodeCount").s
                if is_count(count_nodes):
                    host.nodes = int(count_nodes)
            context.drafts.extend(drafts)


def _release(context: Context, obj: Node, _objects: list[Node]) -> None:
    """Flux HelmRelease and Argo CD Application: chart values inside an object."""
    from kvbudget.gate.readers import values

    spec = obj.get("spec")
    if spec.get("values").is_map:
        values.read(context, spec.get("values"))
    sources = [
        spec.get("source"),
        *spec.get("sources").elements(),
        spec.get("template", "spec", "source"),
    ]
    for source in sources:
        helm = source.get("helm")
        if helm.get("valuesObject").is_map:
            values.read(context, helm.get("valuesObject"))
        text = helm.get("values").text
        if text.s.strip():
            try:
                for doc in documents(text):
                    values.read(context, doc)
            except Malformed:
                continue


def _ray_service(context: Context, obj: Node, objects: list[Node]) -> None:
    """KubeRay: the Serve config is a string inside the object."""
    from kvbudget.gate.readers import ray

    text = obj.get("spec", "serveConfigV2").text
    if text.s.strip():
        with suppress(Malformed):
            for doc in documents(text):
                ray.read(context, doc)
    _workload(context, obj, objects)


def _chart(context: Context, obj: Node, _objects: list[Node]) -> None:
    """k3s HelmChart: values as a string."""
    from kvbudget.gate.readers import values

    text = obj.get("spec", "valuesContent").text
    if text.s.strip():
        with suppress(Malformed):
            for doc in documents(text):
                values.read(context, doc)


_KINDS = {
    "ConfigMap": _config_map,
    "Model": _kubeai,
    "LLMInferenceService": _llm_service,
    "LLMInferenceServiceConfig": _llm_service,
    "InferenceService": _inference_service,
    "DynamoGraphDeployment": _dynamo,
    "DynamoComponentDeployment": _dynamo,
    "HelmRelease": _release,
    "Application": _release,
    "ApplicationSet": _release,
    "HelmChart": _chart,
    "HelmChartConfig": _chart,
    "RayService": _ray_service,
}
