"""Collects the facts of a request in order of trust, and runs the engine's arithmetic on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount, Provenance, Term
from kvbudget.derivation import Derivation
from kvbudget.derive.carried import carried_pool, carry
from kvbudget.derive.flags import (
    check_value,
    in_release,
    load_flags,
)  # fmt: skip
from kvbudget.derive.gathered import Gathered
from kvbudget.derive.settings import take_cautions, take_flags, take_lengths
from kvbudget.errors import MissingFact
from kvbudget.formula.evaluate import Run, evaluate
from kvbudget.formula.registry import Engine, load_engine
from kvbudget.units import MIB, format_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.budget import ProvenanceKind
    from kvbudget.derive.flags import FlagValue
    from kvbudget.derive.request import Evidence, Request
    from kvbudget.formula.program import Program

SMI_EXTRA_MIB = (512, 300, 770)
"""nvidia-smi's total exceeds the driver's by this much on public start-ups: usual, least, most."""


@dataclass
class Derived:
    """The outcome for one rank (the one whose pool is smallest)."""

    request: Request
    engine: Engine
    version: str
    gathered: Gathered
    run: Run
    programs: list[Program]
    derivation: Derivation
    notes: list[str]

    def amount(self, name: str) -> Amount | None:
        return self.run.amount(name) or self.gathered.numbers.get(name)

    @property
    def fits(self) -> bool:
        """False where the weights leave no pool or one request of max_model_len does not fit."""
        pool, fits = self.amount("kv_cache_memory"), self.amount("fits")
        return not ((pool is not None and pool.value <= 0) or (fits is not None and not fits.value))


def derive(request: Request, *, stage: int | None = None) -> Derived:
    """The engine's derivation of a request: of one pipeline stage, or of the tightest.

    Raises MissingFact where the pool is undetermined.
    """
    engine = load_engine(request.engine)
    version = request.version or engine.latest
    known = load_flags(engine.name)
    for name, value in request.flags.items():
        if name in known:
            check_value(known[name], value)
    selectors = engine.selectors(version, request.env)
    programs = engine.programs(version, selectors)
    stages = range(_stage_count(request, engine, version)) if stage is None else (stage,)
    ranks = [_one_rank(request, engine, version, selectors, programs, s) for s in stages]
    tightest = min(ranks, key=_pool_size)
    pools = [rank.amount("kv_cache_memory") for rank in ranks]
    if len(ranks) > 1 and None not in pools:
        shown = ", ".join(format_size(int(pool.value)) for pool in pools if pool is not None)
        tightest.notes.append(
            f"a log prints every pipeline stage's own pool ({shown}, first to last); "
            f"stage {ranks.index(tightest)} decides and is the one computed here"
        )
    return tightest


def _pool_size(derived: Derived) -> float:
    for name in ("num_gpu_blocks", "kv_cache_tokens", "kv_cache_memory"):
        found = derived.amount(name)
        if found is not None:
            return found.value
    return float("inf")


def _stage_count(request: Request, engine: Engine, version: str) -> int:
    name = engine.raw["roles"]["pipeline_parallel_size"]
    if not in_release(load_flags(engine.name)[name], version):
        return 1
    found = request.stated.get(name) or request.evidence.get(name)
    value: Any = request.flags.get(name)
    if value is None and found is not None and isinstance(found.value, Amount):
        value = found.value.value
    return max(1, int(value or 1))


def settled(request: Request) -> dict[str, Amount]:
    """Every number the release takes or comes to on such a card, as far as facts reach.

    Nothing is demanded: without a model or a card their numbers are absent.
    """
    engine = load_engine(request.engine)
    version = request.version or engine.latest
    selectors = engine.selectors(version, request.env)
    facts, run = _run(request, engine, version, selectors, engine.programs(version, selectors), 0)
    reached = {name: run.amount(name) for name in run.numbers}
    return {**facts.numbers, **{name: found for name, found in reached.items() if found}}


def _run(
    request: Request, engine: Engine, version: str, selectors: Mapping[str, str],
    programs: list[Program], stage: int,
) -> tuple[Gathered, Run]:  # fmt: skip
    facts = Gathered()
    by_itself = engine.selectors(version, {})
    for name, value in selectors.items():
        unset = by_itself.get(name) == value
        kind: ProvenanceKind = "engine_default" if unset else "flag"
        facts.text(name, value, Provenance(kind, f"{engine.name} {version}"))
    changed = _take_evidence(facts, request, engine, programs)
    _take_card(facts, request)
    take_flags(facts, request, engine, version)
    _take_model(facts, request, engine, version, stage)
    run = evaluate(programs, facts.facts())
    pool = carried_pool(engine, request.evidence, changed)
    if pool is not None and pool not in facts.provenance:
        run = carry(facts, run, programs, request.evidence, pool, changed[0])
    wanted = facts.value("max_model_len")
    longest = run.amount("max_model_len_that_fits")
    if wanted is not None and facts.texts.get("max_model_len_auto") and longest is not None:
        fitted = min(wanted, int(longest.value))
        if 0 < fitted < wanted:
            facts.numbers["max_model_len"] = Amount.exact(fitted, "tok")
            run = evaluate(programs, facts.facts())
    return facts, run


def _one_rank(
    request: Request, engine: Engine, version: str, selectors: Mapping[str, str],
    programs: list[Program], stage: int,
) -> Derived:  # fmt: skip
    facts, run = _run(request, engine, version, selectors, programs, stage)
    if run.amount("kv_cache_memory") is None and run.amount("kv_cache_tokens") is None:
        run.need("kv_cache_memory" if "kv_cache_memory" in run.units else "kv_cache_tokens")
    notes = [*request.notes, *engine.version_notes(version), *facts.notes]
    if request.model is not None:
        notes += request.model.notes
    return Derived(
        request, engine, version, facts, run, programs,
        Derivation(", ".join(p.file for p in programs), engine.name, version,
                   tuple(_terms(facts, run)), tuple(run.steps), tuple(notes)), notes,
    )  # fmt: skip


def _take_evidence(
    facts: Gathered, request: Request, engine: Engine, programs: list[Program]
) -> list[str]:
    """`--set` first, then what a log or profile printed; -> facts of flags that it lacks.

    A flag given beside a log asks "what if", unless the log has the same: then the log's results
    make way for the arithmetic.
    """
    outcomes = {step.name for program in programs for step in program.steps}
    known = load_flags(request.engine)
    changed = [
        flag for name, value in request.flags.items()
        if not _says(request.evidence.get((flag := known[name]).fact), value)
    ]  # fmt: skip
    facts_changed = [flag.fact for flag in changed]
    carried = carried_pool(engine, request.evidence, facts_changed)
    gone = []
    for source in (request.stated, request.evidence):
        for name, item in source.items():
            if source is request.evidence and name in request.flags:
                continue
            if source is request.evidence and changed and name in outcomes:
                gone += [name] if item.provenance.kind == "log" and name != carried else []
                continue
            _put(facts, name, item)
    if gone:
        facts.notes.append(
            f"{', '.join(sorted(gone))} of the log made way for "
            f"{', '.join(flag.cli[0] for flag in changed)}: computed anew from the log's terms, "
            "and modelled where it prints none"
        )
    return facts_changed


def _says(item: Evidence | None, value: FlagValue) -> bool:
    """True where a log states the value that a flag has."""
    if item is None:
        return False
    if isinstance(item.value, Amount):
        return isinstance(value, int | float) and item.value.low <= value <= item.value.high
    return str(value) == item.value


def _put(facts: Gathered, name: str, item: Evidence) -> None:
    if isinstance(item.value, Amount):
        facts.number(name, item.value, item.provenance)
    else:
        facts.text(name, item.value, item.provenance)


def _take_card(facts: Gathered, request: Request) -> None:
    gpu = request.gpu
    total = request.gpu_memory or (gpu.total.value if gpu is not None else None)
    if total is not None and (gpu is None or gpu.smi_total is None):
        best, low, high = (int(total / MIB + extra) for extra in SMI_EXTRA_MIB)
        facts.number("smi_memory_mib", Amount(best, low, high, "n"),
                     Provenance("modelled", "total_memory + 300 to 770 MiB"))  # fmt: skip
    if request.gpu_memory is not None:
        facts.number("total_memory", Amount.exact(request.gpu_memory, "B"),
                     Provenance("flag", "--gpu-memory"))  # fmt: skip
    if gpu is None:
        return
    catalogue = Provenance("catalogue", f"gpus.yaml: {gpu.name}")
    facts.number("total_memory", gpu.total, catalogue)
    if gpu.smi_total is not None:
        facts.number("smi_memory_mib", Amount.exact(gpu.smi_total // 2**20, "n"), catalogue)
    if gpu.sm_count is not None:
        facts.number("sm_count", Amount.exact(gpu.sm_count, "n"), catalogue)


def _take_model(
    facts: Gathered, request: Request, engine: Engine, version: str, stage: int
) -> None:
    from kvbudget.derive.model_terms import take_estimates, take_layers
    from kvbudget.derive.speculation import take_speculation

    take_lengths(facts, request, engine, version)
    take_speculation(facts, request, engine, version)
    if request.model is None:
        return
    take_layers(facts, request, engine, version, stage)
    take_estimates(facts, request, engine, version, stage)
    take_cautions(facts, request, engine, version)


def _terms(facts: Gathered, run: Run) -> list[Term]:
    """The numbers the derivation used, memory first, and the residual."""
    used = [name for name in run.numbers if name in facts.provenance]
    rows = [
        Term(name, replace(facts.numbers[name], unit=run.units.get(name, facts.numbers[name].unit)),
             facts.provenance[name])
        for name in used
    ]  # fmt: skip
    pool = run.amount("kv_cache_memory")
    if pool is not None and "kv_cache_memory" not in facts.provenance:
        step = next((s for s in run.steps if s.name == "kv_cache_memory"), None)
        where = f"{step.symbol} = {step.expr}" if step else "residual"
        rows.append(Term("kv_cache_memory", pool, Provenance("derived", where)))
    return sorted(rows, key=lambda term: term.amount.unit != "B")


def need_capacity(request: Request) -> None:
    """Raises MissingFact where neither a card nor a log or profile states the memory."""
    known = {*request.stated, *request.evidence}
    enough = {"total_memory", "kv_cache_memory", "num_gpu_blocks", "kv_cache_tokens",
              "avail_memory_before_weights", "requested_memory"}  # fmt: skip
    if request.gpu is None and request.gpu_memory is None and not known & enough:
        raise MissingFact(
            "the card's memory is not known", ("total_memory",),
            "give --gpu NAME or --gpu-memory SIZE; derive also takes --from-log or --from-profile",
        )  # fmt: skip
