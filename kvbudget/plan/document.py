"""A plan as JSON (schema kvbudget.plan/1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.derive.document import document, step_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvbudget.plan.search import Asked, Option


def plan_document(
    asked: Asked, options: Sequence[Option], more: Callable[[], int | None]
) -> dict[str, Any]:
    """The JSON object; every option carries its result, margin and derivation.

    `more` says how many cards would do; it is asked where no option serves what is wanted.
    """
    served = any(option.verdict != "no" for option in options)
    first = document(options[0].derived) if options else {}
    return {
        "schema": "kvbudget.plan/1",
        "engine": first.get("engine"),
        "engine_version": first.get("engine_version"),
        "model": first.get("model"),
        "asked": {"context": asked.context, "concurrency": asked.concurrency, "gpus": asked.gpus},
        "gpus_needed": None if served else more(),
        "options": [_option(option) for option in options],
        "notes": first.get("notes", []),
    }


def _option(option: Option) -> dict[str, Any]:
    result = document(option.derived)["result"]
    return {
        "flags": dict(option.flags),
        "command": command_line(option),
        "buys": list(option.buys),
        "concurrency": option.concurrency,
        "result": result,
        "margin_memory": result["margin_memory"],
        "verdict": option.verdict,
        "steps": [step_object(step) for step in option.derived.derivation.steps],
    }


def command_line(option: Option) -> str:
    """The flags as the engine spells them."""
    from kvbudget.derive.flags import load_flags

    flags = load_flags(option.derived.engine.name)
    return " ".join(f"{flags[name].cli[0]} {value}" for name, value in option.flags.items())
