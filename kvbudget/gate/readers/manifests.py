"""YAML and JSON files: which shape a document has, and the reader it gets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.gate.nodes import EMPTY, Malformed, Node, documents, json_document
from kvbudget.gate.readers.jinja import filled

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_TEMPLATE = re.compile(r"\{\{|\{%")


def read(context: Context) -> None:
    """A .yaml file; text with `{{`/`{%` that is no YAML is read as a template."""
    from kvbudget.gate.readers import ansible, template

    text = context.text
    templated = _TEMPLATE.search(text.s) is not None
    if templated and template.in_chart(context):
        template.read(context)
        return
    try:
        docs = documents(text)
    except Malformed as exc:
        if templated:
            template.read(context)
            return
        if exc.detail.startswith("found character") and "\t" in text.s:
            exc.detail += " (a tab)"
        raise
    if templated and not any(
        doc.is_list and ansible.is_ansible([item for item in doc.elements() if item.is_map])
        for doc in docs
    ):
        try:
            docs = documents(filled(text, {}))
        except Malformed:
            template.read(context)
            return
    read_documents(context, docs)


def read_json(context: Context) -> None:
    """A .json file: ECS task definition, Triton model.json, Kubernetes object, engine config."""
    doc = json_document(context.text)
    read_documents(context, [doc], json=True)


def read_documents(
    context: Context, docs: list[Node], embedded: bool = False, *, json: bool = False
) -> None:
    """Documents of one file, joined where they refer to each other."""
    objects = [doc for doc in docs if _is_object(doc)]
    for doc in docs:
        if _is_kustomization(context, doc):
            from kvbudget.gate.readers import kustomize

            kustomize.read(context, doc)
        elif _is_object(doc):
            from kvbudget.gate.readers import kubernetes

            kubernetes.read_object(context, doc, objects)
        elif doc.is_map:
            _map(context, doc, embedded=embedded, json=json)
        elif doc.is_list:
            _list(context, doc)


def _is_object(doc: Node) -> bool:
    return (
        doc.is_map
        and doc.get("kind").is_scalar
        and (bool(doc.get("apiVersion").s) or doc.get("kind").s in ("Kustomization", "List"))
    )


def _is_kustomization(context: Context, doc: Node) -> bool:
    named = context.name in ("kustomization.yaml", "kustomization.yml", "Kustomization")
    return doc.is_map and named and doc.get("kind").s in ("", "Kustomization", "Component")


def _map(context: Context, doc: Node, *, embedded: bool, json: bool) -> None:
    from kvbudget.gate.readers import ci, commands, compose, configs, ecs, ray, values

    if compose.is_compose(doc):
        compose.read(context, doc)
    elif ci.is_actions(doc):
        ci.read_actions(context, doc)
    elif ecs.containers(doc) is not EMPTY:
        ecs.read(context, doc)
    elif configs.is_llama_swap(doc):
        configs.read_llama_swap(context, doc)
    elif ray.is_ray(doc):
        ray.read(context, doc)
    elif configs.is_skypilot(doc):
        configs.read_skypilot(context, doc)
    elif doc.has("sglang_config") or doc.has("vllm_config") or configs.is_srt(doc):
        configs.read_srt(context, doc)
    elif configs.is_triton(context, json=json):
        configs.read_triton(context, doc)
    elif configs.read_engine_config(context, doc) or (
        doc.has("models") and configs.read_gpustack(context, doc.get("models"))
    ):
        return
    elif not embedded:
        if ci.read_gitlab(context, doc):
            return
        before = len(context.drafts)
        values.read(context, doc)
        if len(context.drafts) == before and not values.has_templates(context):
            commands.read(context, doc)


def _list(context: Context, doc: Node) -> None:
    from kvbudget.gate.readers import ansible, commands, configs, kubernetes, kustomize

    elements = [item for item in doc.elements() if item.is_map]
    if not elements:
        return
    if any(item.has("backend_parameters") or item.has("backend_version") for item in elements):
        configs.read_gpustack(context, doc)
    elif all(item.has("op") and item.has("path") for item in elements):
        kustomize.read_operations(context, doc)
    elif ansible.is_ansible(elements):
        ansible.read(context, doc)
    else:
        objects = [item for item in elements if _is_object(item)]
        for item in objects:
            kubernetes.read_object(context, item, objects)
        if not objects:
            commands.read(context, doc)
