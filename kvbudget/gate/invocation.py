"""Drafts -> invocations: the record of what one engine process was told."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.gate import values
from kvbudget.gate.draft import Draft, EnvValue, Host, gpu_ids
from kvbudget.gate.images import Image, engine_release, moving, parse_image, release
from kvbudget.gate.knowledge import Engine, engine, memory_env, secret
from kvbudget.gate.nodes import Malformed, Node, documents
from kvbudget.gate.settings import Setting, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.gate.source import Text

    Read = Callable[[str, str], tuple[str, Text] | None]


@dataclass
class Invocation:
    """One engine process as declared (gate JSON: `invocations`)."""

    file: str
    line: int
    engine: Engine
    settings: Settings
    env: dict[str, EnvValue]
    host: Host
    model: str | None = None
    model_unresolved: int = 0
    version_hint: str | None = None
    version: str | None = None
    image: Image | None = None
    version_line: int = 0
    unpinned: str | None = None
    python_call: bool = False
    lmcache: bool = False
    assumed_version: str | None = None
    annotations: dict[str, tuple[str, int]] = field(default_factory=dict)
    stands_alone: str | None = None
    """The config file that is read as a process unless another file refers to it."""

    @property
    def key(self) -> str:
        """Identity without line numbers: `engine:model`."""
        return f"{self.engine.name}:{self.model or '?'}"

    def get(self, name: str) -> Any:  # noqa: ANN401
        """Value of a flag in force."""
        return self.settings.get(name)

    def at(self, name: str) -> int:
        """Line of a flag (0 if unset)."""
        setting = self.settings.values.get(name)
        return setting.line if setting else 0

    @property
    def flags(self) -> dict[str, Any]:
        """The memory set, typed."""
        out = {}
        for name, setting in self.settings.values.items():
            option = self.engine.options.get(name)
            if option is not None and option.memory:
                out[name] = setting.value
        return out

    @property
    def other_flags(self) -> dict[str, Any]:
        """Everything else that was understood."""
        return {
            name: "***" if secret(name) else setting.value
            for name, setting in self.settings.values.items()
            if not self.engine.options[name].memory and name not in ("model", "model_path")
        }

    @property
    def unresolved(self) -> list[str]:
        """Memory settings (and `model`) that no static reading can know."""
        names = [
            name
            for name in self.settings.unresolved
            if name in self.engine.options and self.engine.options[name].memory
        ]
        if self.model_unresolved:
            names.append("model")
        return sorted(names)

    @property
    def tp(self) -> int | None:
        """Tensor parallel size; 1 if unset, None if unresolved."""
        name = self.engine.roles["tensor"]
        value = self.get(name)
        if name in self.settings.unresolved:
            return None
        return value if isinstance(value, int) else 1

    @property
    def pp(self) -> int:
        """Pipeline parallel size, 1 if unset."""
        value = self.get(self.engine.roles["pipeline"])
        return value if isinstance(value, int) else 1


def build(draft: Draft, file: str, read: Read) -> Invocation:
    """Understand a draft. `read(path, base)` gives a neighbouring file of the tree."""
    eng = engine(draft.engine)
    settings = Settings(eng)
    probe = Settings(eng)
    probe.words(draft.words)
    config = probe.values.get("config")
    if config is not None and isinstance(config.value, str):
        found = _file(config.value, draft, file, read)
        if found is not None:
            _config(settings, *found)
            settings.layer += 1
    settings.file = None
    for given in draft.given:
        name = given.name
        option = eng.options.get(name) or eng.spelled.get("--" + name.replace("_", "-"))
        if option is not None:
            settings.put_object(option, given.value, given.line, given.spelled)
    if draft.given:
        settings.layer += 1
    settings.words(draft.words)
    inv = Invocation(
        file=file,
        line=draft.line,
        engine=eng,
        settings=settings,
        env={
            name: item for name, item in draft.env.items() if memory_env(name) and item.value.known
        },
        host=draft.host,
        python_call=draft.python_call,
        lmcache=draft.lmcache,
        annotations=draft.annotations,
        stands_alone=draft.config_base,
    )
    _model(inv, draft)
    _version(inv, draft)
    _cards(inv, draft)
    return inv


def _file(path: str, draft: Draft, base: str, read: Read) -> tuple[str, Text] | None:
    """A file that a process names, where the tree holds it, and which file of the tree that is."""
    mounted = draft.files.get(path)
    if mounted is not None:
        return mounted.file, mounted.text
    return read(_on_host(path, draft.mounts), base)


def _on_host(path: str, mounts: list[tuple[str, str]]) -> str:
    """A container's path as the host knows it, where a mount says so."""
    for host, inside in sorted(mounts, key=lambda pair: -len(pair[1])):
        if path == inside or path.startswith(inside.rstrip("/") + "/"):
            return host + path[len(inside.rstrip("/")) :]
    return path


def _config(settings: Settings, path: str, text: Text) -> None:
    try:
        docs = documents(text)
    except Malformed:
        return
    settings.file = path
    for doc in docs[:1]:
        for key, line, value in doc.pairs():
            put_key(settings, key, line, value)


def put_key(settings: Settings, key: str, line: int, value: Node) -> None:
    """One key of an engine's config file."""
    option, negated, _ = settings.find("--" + key.strip().replace("_", "-"))
    if option is None:
        return
    item = value.value()
    if option.kind == "bool" and negated and isinstance(item, bool):
        item = not item
    settings.put_object(option, item, line, key)


def _model(inv: Invocation, draft: Draft) -> None:
    settings = inv.settings
    field_name = inv.engine.roles["model"]
    positional = [word for word in settings.positional if word.s]
    model = settings.get(field_name)
    leads = bool(positional) and bool(draft.words) and positional[0] is draft.words[0]
    if leads and positional[0].known and inv.engine.positional_model:
        inv.model = clean_model(positional[0].s)  # `vllm serve X --model Y` serves X
        return
    if field_name in settings.unresolved:
        inv.model_unresolved = settings.unresolved[field_name].line
        return
    if isinstance(model, str) and model:
        inv.model = clean_model(model)
        return
    if leads and inv.engine.positional_model:
        inv.model_unresolved = positional[0].line or inv.line
        return
    known = [word for word in positional if word.known]
    if known and inv.engine.positional_model and not draft.python_call:
        inv.model = clean_model(known[0].s)
        return
    name = _model_name(draft)
    hint = draft.model_hint if draft.model_hint is not None and draft.model_hint.s else name
    if hint is not None and hint.s:
        if hint.known:
            inv.model = clean_model(hint.s)
        else:
            inv.model_unresolved = hint.line or inv.line


def _model_name(draft: Draft) -> Text | None:
    """A launcher's own words for the model: what it loads before what it is called."""
    for names in (("--model-id", "--model_id"), ("--model-name", "--model_name", "-n")):
        for index, word in enumerate(draft.words):
            flag, sep, _ = word.s.partition("=")
            if flag in names:
                if sep:
                    return word.cut(len(flag) + 1)
                if index + 1 < len(draft.words):
                    return draft.words[index + 1]
    return None


def clean_model(text: str) -> str:
    """A leading `hf://` is dropped, any other URI stays whole."""
    return text.removeprefix("hf://")


def _version(inv: Invocation, draft: Draft) -> None:
    if draft.backend_version is not None and draft.backend_version.s:
        if draft.backend_version.known:
            inv.version_hint = draft.backend_version.s
            inv.version = release(inv.version_hint)
            inv.version_line = draft.version_line
            if moving(inv.version_hint):
                inv.unpinned = f"version {inv.version_hint}"
        return
    if draft.image is not None and draft.image.s:
        image = parse_image(draft.image.s)
        if image is None:
            return
        inv.image = image
        inv.version_hint = image.hint
        inv.version = engine_release(image)
        inv.version_line = draft.version_line or draft.image.lines[-1]
        if not image.pinned:
            inv.unpinned = f"image {draft.image.s}"
        if inv.version is not None:
            return
    pins = [pin for pin in draft.pins or [] if pin.engine == inv.engine.name]
    if pins and (draft.image is None or (inv.version is None and not _engine_image(inv.image))):
        pin = next((pin for pin in pins if pin.version), pins[-1])
        if pin.version:
            inv.version_hint, inv.version = pin.version, release(pin.version)
            inv.unpinned = None
        else:
            inv.unpinned = f"{pin.engine} installed without a version"
        inv.version_line = pin.line


def _engine_image(image: Image | None) -> bool:
    return image is not None and re.search(r"vllm|sglang", image.repository) is not None


def _cards(inv: Invocation, draft: Draft) -> None:
    host = inv.host
    visible = draft.env.get("CUDA_VISIBLE_DEVICES") or draft.env.get("HIP_VISIBLE_DEVICES")
    nvidia = draft.env.get("NVIDIA_VISIBLE_DEVICES")
    for item in (visible, nvidia):
        if item is None:
            continue
        ids = gpu_ids(item.value.s)
        if ids:
            host.gpus = len(ids)
            if host.gpu_ids is None or (item is visible and host.share_ids is None):
                host.gpu_ids = ids
            break
    if host.gpu_ids is not None and host.share_ids is None:
        host.share_ids = host.gpu_ids
    if host.gpus is None and host.gpu_ids is not None:
        host.gpus = len(host.gpu_ids)


def value_text(setting: Setting) -> str:
    """A value for a message."""
    if isinstance(setting.value, (dict, list)):
        return json.dumps(setting.value)
    return str(setting.value)


def record(inv: Invocation) -> dict[str, Any]:
    """The JSON object of an invocation (gate.md 1.1)."""
    return {
        "file": inv.file,
        "line": inv.line,
        "engine": inv.engine.name,
        "engine_version_hint": inv.version_hint,
        "engine_version": inv.version,
        "model": inv.model,
        "flags": inv.flags,
        "env": {name: item.value.s for name, item in inv.env.items()},
        "gpus": inv.host.gpus,
        "gpu_ids": inv.host.gpu_ids,
        "gpu_type": inv.host.gpu_type,
        "host_memory_limit_bytes": inv.host.memory_limit,
        "shm_bytes": inv.host.shm,
        "unresolved": inv.unresolved,
        "other_flags": {
            name: value for name, value in inv.other_flags.items() if not values.has_hole(value)
        },
    }
