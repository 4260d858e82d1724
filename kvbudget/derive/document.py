"""A derivation as the JSON object users' scripts read (schema kvbudget.derive/1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvbudget.budget import Amount, Term
    from kvbudget.derivation import Step
    from kvbudget.derive.assemble import Derived

SCHEMA = "kvbudget.derive/1"

RESULT = (
    "requested_memory", "kv_cache_memory", "bytes_per_token", "reserved_bytes_per_token",
    "bytes_per_block", "num_gpu_blocks", "kv_cache_tokens", "max_concurrency", "max_model_len",
    "max_model_len_that_fits", "margin_memory", "state_bytes_per_request",
)  # fmt: skip


def document(derived: Derived) -> dict[str, Any]:
    """The JSON object. A key an engine has no term for is null."""
    model = derived.request.model
    return {
        "schema": SCHEMA,
        "engine": derived.engine.name,
        "engine_version": derived.version,
        "model": None if model is None else {
            "name": model.name, "architecture": model.architecture, "params": model.params,
            "attention": list(model.attention_kinds),
        },
        "terms": [term_object(term) for term in derived.derivation.inputs],
        "flags": flags_object(derived),
        "steps": [step_object(step) for step in derived.derivation.steps],
        "layer_groups": [
            {
                "kind": group.kind, "layers": group.layers, "page_bytes": group.page_bytes,
                "bytes_per_token": group.bytes_per_token, "state_bytes": group.state_bytes,
                "window": group.window, "num_kv_heads": group.num_kv_heads,
            }
            for group in derived.gathered.groups
        ],
        "result": {name: _value(derived.amount(name)) for name in RESULT},
        "fits": derived.fits,
        "files": [program.file for program in derived.programs],
        "notes": derived.notes,
    }  # fmt: skip


def _value(amount: Amount | None) -> int | float | None:
    return None if amount is None else amount.value


PUBLIC_KIND = {"engine_default": "flag", "measured": "profile"}
"""Kinds of the JSON: an unset flag is a flag (its source says unset), a measurement a profile."""


def term_object(term: Term) -> dict[str, Any]:
    """One term with its interval and provenance."""
    amount = term.amount
    kind = PUBLIC_KIND.get(term.provenance.kind, term.provenance.kind)
    where: dict[str, Any] = {"kind": kind, "source": term.provenance.source}
    if term.provenance.line is not None:
        where["line"] = term.provenance.line
    return {"name": term.name, "value": amount.value, "low": amount.low, "high": amount.high,
            "unit": amount.unit, "provenance": where}  # fmt: skip


def step_object(step: Step) -> dict[str, Any]:
    """One step with its expression, the numbers put in, and its source."""
    amount, source = step.amount, step.source
    return {
        "name": step.name, "symbol": step.symbol, "doc": step.doc, "expr": step.expr,
        "substituted": step.substituted, "value": amount.value, "low": amount.low,
        "high": amount.high, "unit": amount.unit,
        "source": None if source is None else {
            "repo": source.repo, "commit": source.commit, "path": source.path,
            "lines": source.lines, "versions": source.versions,
        },
    }  # fmt: skip


def flags_object(derived: Derived) -> dict[str, Any]:
    """Every flag in force that the arithmetic knows: its value and whether the user set it."""
    facts = derived.gathered
    out: dict[str, Any] = {}
    for name, source in facts.provenance.items():
        if source.kind not in ("flag", "engine_default") or source.source.startswith("--set"):
            continue
        amount = facts.numbers.get(name)
        value: Any = facts.texts.get(name) if amount is None else amount.value
        out[name] = {"value": value, "set": source.kind == "flag"}
    return out
