"""The catalogue of causes (logparsers/causes.yaml): what each means, and what helps."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from kvbudget.errors import InputError, KnowledgeError, near
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file

SCHEMA = "kvbudget.causes/1"
PHASES = (
    "startup_check", "dist_init", "weights", "profile", "kv_sizing", "kv_alloc", "graph_capture",
    "warmup", "offload_init", "ready", "runtime", "sleep", "wake_up", "teardown",
)  # fmt: skip
CONFIDENCES = ("unknown", "possible", "likely", "certain")
"""From weakest to strongest."""


class Step(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One thing to do. `knob` is spelled per engine; `value` names a rule of triage.values."""

    action: str
    why: str
    knob: str | None = None
    flag: str | None = None
    direction: str | None = None
    value: str | None = None


class Cause(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One row of the catalogue. `knob`: the direction of the utilisation knob, or none."""

    title: str
    knob: str
    seen: str
    why: str
    phases: tuple[str, ...] = ()
    do: tuple[Step, ...] = ()
    cannot: tuple[str, ...] = msgspec.field(name="not", default=())
    lookalikes: tuple[str, ...] = ()


class Catalogue(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    schema: str
    knobs: dict[str, dict[str, str]]
    causes: dict[str, Cause]

    def cause(self, name: str) -> Cause:
        """Raises InputError for a name the catalogue does not have."""
        try:
            return self.causes[name]
        except KeyError:
            close = [c for c in self.causes if name.rsplit(".", 1)[-1] in c]
            hint = f"one of {', '.join(close)}" if close else "--explain list names them all"
            raise InputError(f"no such cause: {name}", near(name, self.causes, hint)) from None

    def flag(self, knob: str, engine: str | None) -> str | None:
        """How `engine` spells a knob; without an engine every spelling of the two main ones."""
        names = self.knobs[knob]
        if engine in names:
            return names[engine]
        if "any" in names:
            return names["any"]
        if engine is not None:
            return None
        both = [names[e] for e in ("vllm", "sglang") if e in names]
        return " / ".join(dict.fromkeys(both)) or None


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The shipped catalogue. Raises KnowledgeError when it is damaged."""
    path = knowledge_file("logparsers", "causes.yaml")
    raw: Any = load_shipped(path)
    try:
        found = msgspec.convert(raw, Catalogue)
    except msgspec.ValidationError as exc:
        raise KnowledgeError(str(exc), file=str(path)) from exc
    if found.schema != SCHEMA:
        raise KnowledgeError(f"schema is {found.schema!r}, not {SCHEMA!r}", file=str(path))
    return found


def weaker(first: str, second: str) -> str:
    """The weaker of two confidences."""
    return min(first, second, key=CONFIDENCES.index)
