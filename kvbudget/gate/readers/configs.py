"""Configuration files of launchers: engine --config, llama-swap, GPUStack, Triton, SkyPilot, LMI, recipes."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.draft import Draft, Given
from kvbudget.gate.hardware import card
from kvbudget.gate.knowledge import Engine, engine, engine_names
from kvbudget.gate.program import share
from kvbudget.gate.readers.variables import read_env, split_string
from kvbudget.gate.shell_words import Scope
from kvbudget.gate.source import HOLE, Text
from kvbudget.gate.units import is_count

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.nodes import Node


# ---- the engines' own config files -----------------------------------------------------------
def _config_engine(doc: Node) -> tuple[str, int] | None:
    """Engine of a flat map with at least two of its keys; the one with more keys of its own."""
    best: tuple[int, str, int] | None = None
    fields = {name: engine(name) for name in engine_names()}
    keys = [(key.strip(), line) for key, line, _ in doc.pairs()]
    for name, known in fields.items():
        own = [line for key, line in keys if _field(known, key)]
        strong = [
            key for key, _ in keys
            if (f := _field(known, key)) and known.options[f].memory and not _generic(key)
        ]  # fmt: skip
        if len(own) >= 2 and strong:
            score = len(strong) * 100 + len(own)
            if best is None or score > best[0]:
                best = (score, name, own[0])
    return (best[1], best[2]) if best else None


def _generic(key: str) -> bool:
    return key.replace("-", "_") in ("dtype", "quantization", "nnodes", "tp", "pp", "dp")


def _field(known: Engine, key: str) -> str | None:
    option = known.spelled.get("--" + key.replace("_", "-"))
    if option is None and known.negatable and key.startswith(("no-", "no_")):
        option = known.spelled.get("--" + key[3:].replace("_", "-"))
    return option.name if option else None


def read_engine_config(context: Context, doc: Node) -> bool:
    """A vLLM or SGLang `--config` file that stands alone."""
    found = _config_engine(doc)
    if found is None:
        return False
    name, line = found
    draft = Draft(name, line)
    known = engine(name)
    for key, key_line, value in doc.pairs():
        field = _field(known, key.strip())
        if field is None:
            continue
        item = value.value()
        if key.startswith(("no-", "no_")) and isinstance(item, bool):
            item = not item
        draft.given.append(Given(field, item, key_line, key))
        if field in ("model", "model_path"):
            draft.model_hint = value.text
    draft.config_base = context.path
    context.drafts.append(draft)
    return True


# ---- llama-swap ------------------------------------------------------------------------------
_MACRO = re.compile(r"\$\{([\w.-]+)\}")


def is_llama_swap(doc: Node) -> bool:
    """`models:` as a map of maps with `cmd`."""
    return doc.get("models").is_map and any(
        value.has("cmd") for _, _, value in doc.get("models").pairs()
    )


def read_llama_swap(context: Context, doc: Node) -> None:
    """Commands with `${macro}`; groups with `swap: false` share their cards."""
    macros: dict[str, Text] = {}
    node = doc.get("macros")
    for name, _, value in node.pairs():
        macros[name] = value.text
    for item in node.elements():
        for name, _, value in item.pairs():
            macros[name] = value.text
    groups: dict[str, str] = {}
    for name, _, group in doc.get("groups").pairs():
        if group.get("swap").s.lower() == "false":
            for member in group.get("members").elements():
                groups[member.s] = name
    for name, _, model in doc.get("models").pairs():
        own = dict(macros)
        for key, _, value in model.get("macros").pairs():
            own[key] = value.text
        command = _macros(model.get("cmd").text, own)
        rows = [row for row in command.split_lines() if not row.s.lstrip().startswith("#")]
        flat = Text.join(
            [
                row.cut(0, len(row.s.rstrip()) - 1) if row.s.rstrip().endswith("\\") else row
                for row in rows
            ],
            " ",
        )
        env = read_env(model.get("env"))
        scope = Scope()
        for key, said in env.values.items():
            scope.set(key, [said], exported=True)
        reader = context.reader()
        drafts = reader.script(flat, scope, depth=1)
        for draft in drafts:
            unit = f"{context.path}#{groups[name]}" if name in groups else None
            draft.host.share_unit = unit or f"{context.path}##{name}"
            for key, line in env.lines.items():
                if key in draft.env:
                    draft.env[key].line = line
        context.drafts.extend(drafts)
        context.absorb(reader)


def _macros(text: Text, macros: dict[str, Text]) -> Text:
    for _ in range(6):
        if not _MACRO.search(text.s):
            break

        def value(match: re.Match[str]) -> str | None:
            name = match.group(1)
            if name in macros:
                return macros[name].s.replace("\n", " ").strip()
            return HOLE if name in ("PORT", "MODEL_ID") or name.startswith("env.") else None

        new = text.sub(_MACRO, value)
        if new.s == text.s:
            break
        text = new
    return text


# ---- GPUStack --------------------------------------------------------------------------------
def read_gpustack(context: Context, doc: Node) -> bool:
    """A list of models with backend and backend_parameters."""
    found = False
    for item in doc.elements():
        name = item.get("backend").s.lower()
        if name not in engine_names():
            continue
        parameters = item.get("backend_parameters")
        words: list[Text] = []
        for element in parameters.elements():
            words += split_string(element.text)
        line = item.key_line("backend_version") or item.key_line("backend_parameters")
        if not item.has("backend_version") and words:
            line = item.key_line("backend_parameters")
        if not line:
            continue
        found = True
        draft = Draft(name, line, words=words)
        draft.backend_version = item.get("backend_version").text
        draft.version_line = item.key_line("backend_version")
        for key in ("huggingface_repo_id", "model_scope_model_id", "local_path"):
            if item.has(key):
                draft.model_hint = item.get(key).text
                break
        env = read_env(item.get("env"))
        for key, value in env.values.items():
            draft.set_env(key, value, env.lines[key])
        count = item.get("gpu_selector", "gpus_per_replica").s
        ids = item.get("gpu_selector", "gpu_ids").elements()
        draft.host.gpus = int(count) if is_count(count) else (len(ids) or None)
        context.drafts.append(draft)
    return found


# ---- Triton ----------------------------------------------------------------------------------
def is_triton(context: Context, *, json: bool) -> bool:
    """`REPOSITORY/MODEL/VERSION/model.json`."""
    parts = PurePosixPath(context.path).parts
    return json and context.name == "model.json" and (len(parts) < 2 or parts[-2].isdigit())


def read_triton(context: Context, doc: Node) -> None:
    """model.json of the Triton vLLM backend; models of one repository share the cards."""
    own = [line for key, line, _ in doc.pairs() if _field(engine("vllm"), key)]
    if not own:
        return
    draft = Draft("vllm", own[0])
    for key, line, value in doc.pairs():
        field = _field(engine("vllm"), key)
        if field:
            item = value.value()
            if isinstance(item, str) and engine("vllm").options[field].kind == "bool":
                item = item.lower() == "true"
            draft.given.append(Given(field, item, line, key))
            if field == "model":
                draft.model_hint = value.text
    parts = PurePosixPath(context.path).parts
    draft.host.share_unit = "triton:" + "/".join(parts[:-3])
    draft.host.share_ids = _triton_cards(context)
    context.drafts.append(draft)


def _triton_cards(context: Context) -> list[str]:
    found = context.tree.neighbour("../config.pbtxt", context.path)
    if found is None:
        return ["0"]
    match = re.search(r"gpus\s*:\s*\[([\d,\s]+)\]", found[1].s)
    return [part.strip() for part in match.group(1).split(",")] if match else ["0"]


# ---- SkyPilot --------------------------------------------------------------------------------
def is_skypilot(doc: Node) -> bool:
    """A task with `run` and resources or envs."""
    return (
        doc.get("run").is_scalar
        and bool(doc.get("run").s)
        and (doc.has("resources") or doc.has("envs") or doc.has("setup"))
    )


def read_skypilot(context: Context, doc: Node) -> None:
    """`run:` with the task's envs; `setup:` gives the pins."""
    env = read_env(doc.get("envs"))
    kind, count = _accelerators(doc.get("resources"))
    scope = Scope(outside=dict(context.outside))
    for key, value in env.values.items():  # a null must be given at launch
        given = doc.get("envs", key).value() is not None
        said = value if given else Text.on(HOLE, env.lines[key])
        scope.set(key, [said], exported=True)
    if count is not None:
        scope.outside["SKYPILOT_NUM_GPUS_PER_NODE"] = str(count)
    nodes = doc.get("num_nodes").s
    scope.outside["SKYPILOT_NUM_NODES"] = nodes if is_count(nodes) else "1"
    reader = context.reader()
    setup = doc.get("setup").text
    if setup.s:
        reader.script(setup, Scope(), depth=1)
    drafts = reader.script(doc.get("run").text, scope, depth=1)
    image = doc.get("resources", "image_id").text
    for draft in drafts:
        if draft.host.gpus is None and draft.image is None:
            draft.host.gpus = count
        draft.host.gpu_type = draft.host.gpu_type or kind
        if image.s.startswith("docker:") and draft.image is None:
            draft.image, draft.image_line = image.cut(7), image.line
        draft.host.nodes = int(nodes) if is_count(nodes) else 1
        for key, line in env.lines.items():
            if key in draft.env:
                draft.env[key].line = line
    share(drafts, context.path)
    context.drafts.extend(drafts)
    context.absorb(reader)


def _accelerators(resources: Node) -> tuple[str | None, int | None]:
    """Card and number of cards; the card is open where several are named."""
    node = resources.get("accelerators")
    specs = [(item.s, "") for item in (node.elements() if node.is_list else [node]) if item.s]
    specs += [(name, value.s) for name, _, value in node.pairs()]
    cards, counts = set(), set()
    for name, said in specs:
        kind, _, count = name.partition(":")  # `{L4:2}` without a blank is one key
        cards.add(card(kind))
        counts.add(said or count or "1")
    count = counts.pop() if len(counts) == 1 else ""
    return cards.pop() if len(cards) == 1 else None, int(count) if is_count(count) else None


# ---- srt-slurm recipes -----------------------------------------------------------------------
def is_srt(doc: Node) -> bool:
    """A recipe with `backend.sglang_config` (or vllm_config)."""
    backend = doc.get("backend")
    return any(backend.has(f"{name}_config") for name in engine_names())


def read_srt(context: Context, doc: Node) -> None:
    """Pools under `<engine>_config`: each key is one engine process."""
    backend = doc.get("backend") if doc.get("backend").is_map else doc
    resources = doc.get("resources")
    for name in engine_names():
        config = (
            backend.get(f"{name}_config")
            if backend.has(f"{name}_config")
            else doc.get(f"{name}_config")
        )
        known = engine(name)
        for pool, line, settings in config.pairs():
            if not settings.is_map:
                continue
            draft = Draft(name, line)
            for key, key_line, value in settings.pairs():
                field = _field(known, key)
                if field is None:
                    continue
                item = value.value()
                if (
                    isinstance(item, str)
                    and re.search(r"\{\w+\}", item)
                    and not item.lstrip().startswith('{"')
                ):
                    item = HOLE
                draft.given.append(Given(field, item, key_line, key))
            env = read_env(backend.get(f"{pool}_environment"))
            for key, value_text in env.values.items():
                draft.set_env(key, value_text, env.lines[key])
            draft.model_hint = doc.get("model", "path").text
            container = doc.get("model", "container").text
            if (
                container.s
                and ("/" in container.s or ":" in container.s)
                and not container.s.endswith(".sqsh")
            ):
                draft.image, draft.image_line = container, container.line
            draft.host.gpu_type = (
                card(resources.get("gpu_type").s) if resources.get("gpu_type").s else None
            )
            count = resources.get("gpus_per_node").s
            draft.host.gpus = int(count) if is_count(count) else None
            nodes = resources.get(f"{pool}_nodes").s or resources.get("agg_nodes").s
            draft.host.nodes = int(nodes) if is_count(nodes) and int(nodes) > 0 else 1
            context.drafts.append(draft)


# ---- DJL / LMI -------------------------------------------------------------------------------
_PLACEHOLDER = re.compile(r"\{\{.*?\}\}|\$\{.*?\}")
_LMI = {
    "option.model_id": "model",
    "option.tensor_parallel_degree": "tensor_parallel_size",
    "option.pipeline_parallel_degree": "pipeline_parallel_size",
    "option.max_rolling_batch_size": "max_num_seqs",
    "option.max_rolling_batch_prefill_tokens": "max_num_batched_tokens",
    "option.quantize": "quantization",
    "option.swap_space_gb": "swap_space",
}


def read_properties(context: Context) -> None:
    """serving.properties of a DJL/LMI container with the vLLM backend."""
    rows: list[tuple[str, Text, int]] = []
    for row in context.text.split_lines():
        line = row.strip()
        if not line.s or line.s.startswith(("#", "!")):
            continue
        name = re.split(r"[=:]", line.s, maxsplit=1)[0]
        if name != line.s:
            rows.append((name.strip(), line.cut(len(name) + 1).strip(), line.line))
    said = {name: value.s for name, value, _ in rows}
    backend = said.get("option.rolling_batch", "") + said.get("engine", "")
    entry = said.get("option.entryPoint", "")
    if "vllm" not in backend.lower() and "vllm" not in entry.lower():
        return
    first = next((line for name, _, line in rows if name.startswith("option.")), 0)
    if not first:
        return
    draft = Draft("vllm", first)
    known = engine("vllm")
    for name, value, at in rows:
        field = _LMI.get(name) or name.removeprefix("option.")
        value = value.sub(_PLACEHOLDER, lambda _: HOLE)
        if not name.startswith("option.") or field not in known.options:
            continue
        if field == "model":
            draft.model_hint = value
            draft.given.append(Given("model", value.s, at, name))
            continue
        if field == "tensor_parallel_size" and value.s == "max":
            draft.given.append(Given(field, HOLE, at, name))
            continue
        draft.given.append(Given(field, value.s, at, name))
    context.drafts.append(draft)
