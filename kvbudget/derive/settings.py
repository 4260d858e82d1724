"""What flags and the engine's own defaults contribute: batch limits, lengths, ranks, cautions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount, Provenance
from kvbudget.derive.flags import Machine, caution, default_of, in_release, load_flags, refused_word
from kvbudget.derive.gathered import product
from kvbudget.facts import FACTS
from kvbudget.formula.versions import holds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.derive.flags import FlagValue
    from kvbudget.derive.gathered import Gathered
    from kvbudget.derive.request import Request
    from kvbudget.formula.registry import Engine


def take_flags(facts: Gathered, request: Request, engine: Engine, version: str) -> None:
    """Every flag of the release: the user's value, or the engine's own where it has one."""
    machine = Machine(facts.value("total_memory"), request.gpu.name if request.gpu else "",
                      "server", {**facts.texts, **_kinds(request)})  # fmt: skip
    for flag in load_flags(engine.name).values():
        given = flag.name in request.flags
        if not in_release(flag, version):
            if given:
                facts.notes.append(f"{engine.name} {version} has no {flag.cli[0]}: {flag.doc}")
            continue
        value = request.flags[flag.name] if given else default_of(flag, version, machine)
        if value is None:
            continue
        if given:
            said = (caution(flag, value, version, machine), refused_word(flag, value, version))
            facts.notes += [note for note in said if note]
        source = (
            Provenance("flag", flag.cli[0])
            if given
            else Provenance("engine_default", f"{flag.cli[0]} unset, {engine.name} {version}")
        )
        _put_flag(facts, flag.fact, value, source)


def _put_flag(facts: Gathered, name: str, value: FlagValue, source: Provenance) -> None:
    if name in facts.provenance:
        if facts.texts.get(name) in LOGGED_SWITCHES:
            _put_switch(facts, name, LOGGED_SWITCHES[facts.texts[name]])
        return
    if isinstance(value, bool):
        _put_switch(facts, name, value)
    elif isinstance(value, int | float):
        facts.numbers[name] = Amount.exact(value, _unit(name))
    else:
        facts.texts[name] = str(value)
    facts.provenance[name] = source


LOGGED_SWITCHES = {"True": True, "False": False}
"""As a log's dump of the settings spells them."""


def _put_switch(facts: Gathered, name: str, on: bool) -> None:
    facts.numbers[name] = Amount.exact(int(on), "n")
    facts.texts[name] = "on" if on else "off"


def _unit(name: str) -> str:
    spec = FACTS.get(name)
    return spec.unit if spec is not None and spec.unit is not None else "n"


def _kinds(request: Request) -> dict[str, str]:
    if request.model is None:
        return {}
    quantised = request.model.quantization_config is not None
    return {"attention": "mla" if request.model.is_mla else "full",
            "checkpoint": "quantised" if quantised else "unquantised"}  # fmt: skip


def take_lengths(facts: Gathered, request: Request, engine: Engine, version: str) -> None:
    """max_model_len: as set, or the model's; -1 (auto) is fitted after a first pass."""
    role = engine.raw["roles"]["max_model_len"]
    model = request.model
    own = model.context_length if model is not None else 0
    given = facts.numbers.get(role)
    if given is not None and given.value == -1:
        del facts.numbers[role], facts.provenance[role]
        facts.texts["max_model_len_auto"] = "yes"
        given = None
    if given is not None and role != "max_model_len":
        facts.number("max_model_len", given, facts.provenance[role])
    if own:
        source = Provenance("config", "config.json: max_position_embeddings")
        facts.number("max_model_len", Amount.exact(own, "tok"), source)
    length = facts.value("max_model_len")
    unlock = engine.raw.get("long_context_env", "")
    if length is not None and own and length > own and request.env.get(unlock) != "1":
        facts.notes.append(f"{length:,} tokens are more than the model's {own:,}: the engine refuses "
                           f"to start without {unlock}=1")  # fmt: skip
    if length is not None:
        facts.number("model_max_len", Amount.exact(max(length, own), "tok"),
                     facts.provenance["max_model_len"])  # fmt: skip
        traits = {} if model is None else {
            "multimodal": "yes" if model.is_multimodal else "no",
            "attention": "mla" if model.is_mla else "full",
        }  # fmt: skip
        _raise_batch(facts, engine, version, length, traits)


def _raise_batch(
    facts: Gathered, engine: Engine, version: str, length: int, traits: dict[str, str]
) -> None:
    """Engine rules that tie the batch limits to the length (index.yaml: batch_rules)."""
    tokens, requests = engine.raw["roles"].get("tokens"), engine.raw["roles"].get("requests")
    texts = {**facts.texts, **traits}
    _multiply_defaults(facts, engine, version)
    for rule in engine.raw.get("batch_rules") or ():
        if any(texts.get(k) != v for k, v in rule["when"].items()):
            continue
        if not holds(version, rule["versions"]) or length > rule.get("longest", length):
            continue
        if facts.provenance.get(tokens) and facts.provenance[tokens].kind == "engine_default":
            raised = max(facts.numbers[tokens].value, length, rule.get("least", 0))
            facts.numbers[tokens] = Amount.exact(raised, "tok")
    if tokens in facts.numbers and requests in facts.numbers:
        for name, bound in (
            (tokens, facts.numbers[requests].value * length),
            (requests, facts.numbers[tokens].value),
        ):
            if facts.provenance[name].kind == "engine_default":
                least = min(facts.numbers[name].value, bound)
                facts.numbers[name] = Amount.exact(least, facts.numbers[name].unit)


def _multiply_defaults(facts: Gathered, engine: Engine, version: str) -> None:
    """Defaults that another setting multiplies (index.yaml: default_factors)."""
    for rule in engine.raw.get("default_factors") or ():
        fits = all(facts.texts.get(k) == v for k, v in rule["when"].items())
        for name in rule["of"] if fits and holds(version, rule["versions"]) else ():
            if name in facts.numbers and facts.provenance[name].kind == "engine_default":
                amount = facts.numbers[name]
                facts.numbers[name] = Amount.exact(amount.value * rule["factor"], amount.unit)


def take_context_ranks(facts: Gathered, engine: Engine, version: str) -> None:
    """context_ranks: over how many ranks the tokens of a request are spread."""
    for rule in engine.raw.get("context_ranks") or ():
        if holds(version, rule["versions"]):
            ranks = product(facts, rule["of"])
            if ranks > 1:
                source = Provenance("flag", " x ".join(rule["of"]))
                facts.number("context_ranks", Amount.exact(ranks, "n"), source)
            return


def take_cautions(facts: Gathered, request: Request, engine: Engine, version: str) -> None:
    """Notes on what holds for such a server and is not in the figures (index.yaml: cautions).

    A row that `sets` a text withdraws what the user asked for, as the engine does.
    """
    for row in engine.raw.get("cautions") or ():
        given = all(name in request.flags for name in row.get("given") or ())
        if given and holds_for(facts, row) and holds(version, row["versions"]):
            facts.notes.append(row["note"])
            facts.texts.update(row.get("sets") or {})


def holds_for(facts: Gathered, row: Mapping[str, Any]) -> bool:
    """`when`: a text or one of several; `above`, `below`: known numbers beyond a bound."""
    texts = all(
        facts.texts.get(key) in (wanted if isinstance(wanted, list) else [wanted])
        for key, wanted in (row.get("when") or {}).items()
    )
    numbers = {key: facts.value(key) for side in ("above", "below") for key in row.get(side) or ()}
    known = all(value is not None for value in numbers.values())
    return (
        texts
        and known
        and all((numbers[key] or 0) > bound for key, bound in (row.get("above") or {}).items())
        and all((numbers[key] or 0) < bound for key, bound in (row.get("below") or {}).items())
    )
