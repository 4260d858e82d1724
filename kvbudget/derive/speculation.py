"""What drafting tokens adds: layers with a cache, weights, and what each request may hold."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount, Provenance
from kvbudget.derive.draft_lengths import LENGTHS, draft_lengths, is_one_of
from kvbudget.derive.gathered import Draft
from kvbudget.formula.versions import holds

if TYPE_CHECKING:
    from kvbudget.derive.gathered import Gathered
    from kvbudget.derive.request import Request
    from kvbudget.formula.registry import Engine
    from kvbudget.model.config import Model


def take_speculation(facts: Gathered, request: Request, engine: Engine, version: str) -> None:
    """Facts about drafting (index.yaml: speculation); the draft itself goes to `facts.draft`."""
    rule = engine.raw.get("speculation")
    said = _said(facts, rule) if rule else {}
    algorithm = str(said.get("algorithm") or "")
    if not rule or not (algorithm or said.get("model")):
        return
    source = Provenance("flag", rule["flag"])
    facts.text("speculation", "on", source)
    for row in rule.get("requests") or ():
        if holds(version, row["versions"]):
            amount = Amount.exact(row["value"], "req")
            facts.number(row["fact"], amount, _default(engine, version))
    if request.model is not None and not is_one_of(algorithm, rule["draftless"]):
        own = is_one_of(algorithm, rule["own_layers"])
        path = None if own else str(said.get("model") or "")
        facts.draft = _find(request.model, path)
        _take_draft(facts, rule, version, facts.draft, source)
    _take_lengths(facts, request, engine, version, said)


def _default(engine: Engine, version: str) -> Provenance:
    return Provenance("engine_default", f"{engine.name} {version} under speculation")


def _said(facts: Gathered, rule: dict[str, Any]) -> dict[str, Any]:
    """algorithm, model, tokens, steps, branches: from flags of their own, or of one JSON flag."""
    fields: dict[str, str] = rule["fields"]
    if "config" not in rule:
        return {key: _plain(facts, name) for key, name in fields.items()}
    raw = parse_config(facts.texts.get(rule["config"], ""))
    return {key: raw.get(name) for key, name in fields.items()}


def _plain(facts: Gathered, name: str) -> int | str | None:
    number = facts.value(name)
    return facts.texts.get(name) if number is None else number


def parse_config(text: str) -> dict[str, Any]:
    """A JSON object, or a Python dict as start-up logs print it; {} for anything else."""
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _take_lengths(
    facts: Gathered, request: Request, engine: Engine, version: str, said: dict[str, Any]
) -> None:
    """draft_length, draft_steps, draft_branches: as set, else what the release takes."""
    rule, model = engine.raw["speculation"], request.model
    drafting = facts.draft.model if facts.draft is not None else None
    if drafting is None and not said.get("model"):
        drafting = model
    found, follows = draft_lengths(
        facts, rule, said, (version, model.architecture if model is not None else ""),
        drafting.config if drafting is not None else {},
    )  # fmt: skip
    flag, fallback = Provenance("flag", rule["flag"]), _default(engine, version)
    for key, number in found.items():
        source = flag if said.get(key) == number else fallback
        facts.number(LENGTHS[key], Amount.exact(number, "n"), source)
        if key == "tokens" and rule.get("state_blocks"):
            facts.number(rule["state_blocks"], Amount.exact(number, "blk"), source)
    for name, number in follows.items():
        facts.number(name, Amount.exact(number, "n"), fallback)


def _find(model: Model, path: str | None) -> Draft:
    """The draft: a model in a folder of its own, or the prediction layers of `model`."""
    if not path or Path(path).name == model.name:
        own = model.prediction_layers
        return Draft(own, None, own or None)
    if not Path(path).exists():
        return Draft()
    from kvbudget.model.config import load_model

    draft = load_model(path)
    layers = draft.prediction_layers or len(draft.anatomy.layers)
    return Draft(0, draft, layers)


def _take_draft(
    facts: Gathered, rule: dict[str, Any], version: str, draft: Draft, source: Provenance
) -> None:
    if draft.layers is None:
        if "draft_layers" not in facts.provenance:
            facts.notes.append(rule["unknown"])
        return
    if draft.model is not None:
        facts.notes.append("the draft counts as a plain model of its config (an EAGLE head's "
                           "first projection is wider)")  # fmt: skip
    facts.number("draft_layers", Amount.exact(draft.layers, "n"), source)
    for row in rule.get("notes") or ():
        if holds(version, row["versions"]):
            facts.notes.append(row["note"])


def wider_by(facts: Gathered, engine: Engine) -> int:
    """Tokens drafted per step, where the engine widens recurrent states by them."""
    rule = engine.raw.get("speculation") or {}
    return facts.value("draft_length") or 0 if rule.get("wider_states") else 0
