"""Ray Serve LLM in YAML: `applications[].args.llm_configs[]` with `engine_kwargs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.gate.draft import Draft, Given
from kvbudget.gate.hardware import card
from kvbudget.gate.knowledge import engine
from kvbudget.gate.nodes import Malformed, Node
from kvbudget.gate.readers.variables import read_env

if TYPE_CHECKING:
    from kvbudget.gate.context import Context


def is_ray(doc: Node) -> bool:
    """Something below carries `engine_kwargs` or `model_loading_config`."""
    try:
        return any(
            node.has("engine_kwargs") or node.has("model_loading_config")
            for node in doc.walk()
            if node.is_map
        )
    except Malformed:
        return False


def read(context: Context, doc: Node) -> None:
    """Every map with engine settings."""
    seen: set[int] = set()
    for node in doc.walk():
        if not node.is_map or id(node) in seen:
            continue
        if node.has("engine_kwargs") or node.has("model_loading_config"):
            seen.add(id(node))
            draft(context, node)


def draft(context: Context, node: Node) -> None:
    """One LLMConfig."""
    kwargs = node.get("engine_kwargs")
    line = node.key_line("engine_kwargs") or node.key_line("model_loading_config")
    made = Draft("vllm", line)
    known = engine("vllm").options
    for key, key_line, value in kwargs.pairs():
        name = key.replace("-", "_")
        if name in known:
            made.given.append(Given(name, value.value(), key_line, key))
            if name == "model":
                made.model_hint = value.text
    loading = node.get("model_loading_config")
    source = loading.get("model_source")
    if source.is_map:
        source = source.get("bucket_uri")
    made.model_hint = source.text or loading.get("model_id").text
    made.host.gpu_type = (
        card(node.get("accelerator_type").s) if node.get("accelerator_type").s else None
    )
    env = read_env(node.get("runtime_env", "env_vars"))
    for name, said in env.values.items():
        made.set_env(name, said, env.lines[name])
    context.drafts.append(made)
