"""A record's budgets, verdict and document. Arithmetic only: a replay gives the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from kvbudget.errors import EXIT_EVIDENCE, EXIT_FINDINGS, EXIT_OK
from kvbudget.profile.compare import beside_the_model
from kvbudget.profile.split import RankBudget, split

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.types import Job, Record, Snapshot


@dataclass
class Outcome:
    """A finished profile: the document and the exit code it stands for."""

    document: dict[str, Any]
    code: int
    budgets: list[RankBudget] = field(default_factory=list)


def judge(record: Record, model: Model, policy: Policy) -> Outcome:
    """Terms, pool, identity and verdict of a record. Arithmetic only: replays give the same.

    Raises InputError for a record without the phases the arithmetic needs.
    """
    job, scene = record.job, record.scene
    failures = [rank.failure for rank in record.ranks if rank.failure is not None]
    # The rank that ran out comes before those that were ended because of it.
    failures.sort(key=lambda failure: failure.kind != "oom" or failure.requested is None)
    budgets: list[RankBudget] = []
    if not failures:
        budgets = [split(rank, scene, job, policy, model) for rank in record.ranks]
    worst = min(budgets, key=_pool, default=None)
    stable = all(b.stable for b in budgets)
    notes = [*scene.notes, *([job.defaulted] if job.defaulted else []), *policy.notes, *model.notes]
    for rank in record.ranks:
        notes += rank.notes
    for budget in budgets:
        notes += budget.notes
    if scene.kind == "cpu" and any(failure.kind == "oom" for failure in failures):
        notes.append(
            "real tensors did not fit: --device fake runs the same phases and takes no memory"
        )
    modelled: list[dict[str, Any]] = []
    if worst is not None:
        modelled, said = beside_the_model(worst, model, job, policy, record)
        notes += said
    document = {
        "schema": "kvbudget.profile/1",
        "device": {
            "kind": scene.kind, "name": scene.name, "uuid": scene.uuid,
            "total_memory": scene.total_memory, "reserved_memory": scene.reserved_memory,
            "other_memory": scene.other_memory, "mig": scene.mig,
            "integrated": scene.integrated, "driver": scene.driver, "ecc": scene.ecc,
        },
        "engine": "none",
        "policy": policy.name,
        "model": {"name": model.name, "architecture": model.architecture},
        "settings": {
            "max_num_batched_tokens": job.tokens, "max_num_seqs": job.requests,
            policy.fraction: job.utilization, "tensor_parallel_size": job.tp,
            "pipeline_parallel_size": job.pp, "expert_parallel_size": job.ep,
            "graphs": job.graphs, "runner": job.runner, "load_format": job.load,
        },
        "ranks": [
            {
                "rank": rank.rank,
                "phases": [_phase(s) for s in rank.snapshots],
                "terms": [asdict(t) for t in budgets[n].terms] if budgets else [],
            }
            for n, rank in enumerate(record.ranks)
        ],
        "result": worst.result if worst else dict.fromkeys(
            ("kv_cache_memory", "num_gpu_blocks", "kv_cache_tokens", "margin_memory")),
        "identity": {
            "lhs": worst.lhs if worst else None, "rhs": worst.rhs if worst else None,
            "difference": worst.lhs - worst.rhs
            if worst and worst.lhs is not None and worst.rhs is not None else None,
            "terms": list(worst.counted) if worst else [],
        },
        "modelled": modelled,
        "stable": stable,
        "judged": job.device != "fake" or job.capacity is not None,
        "failure": asdict(failures[0]) if failures else None,
        "notes": list(dict.fromkeys(notes)),
        "versions": {"kvbudget": _version("kvbudget"), **_versions(record)},
    }  # fmt: skip
    if failures:
        ran_out = failures[0].kind == "oom"
        return Outcome(document, EXIT_FINDINGS if ran_out else EXIT_EVIDENCE, budgets)
    return Outcome(document, _code(job, budgets, worst, stable=stable), budgets)


def _pool(budget: RankBudget) -> float:
    """Blocks decide where stages differ in layers; bytes where there are none."""
    found = budget.result["num_gpu_blocks"]
    return (budget.result["kv_cache_memory"] or 0) if found is None else found


def _code(job: Job, budgets: list[RankBudget], worst: RankBudget | None, *, stable: bool) -> int:
    if not stable or not budgets or worst is None:
        return EXIT_EVIDENCE
    pool = worst.result["kv_cache_memory"]
    if pool is None:
        return EXIT_EVIDENCE
    judged = job.device != "fake" or job.capacity is not None
    return EXIT_FINDINGS if judged and pool <= 0 else EXIT_OK


def _phase(snapshot: Snapshot) -> dict[str, Any]:
    row = asdict(snapshot)
    extra = row.pop("extra")
    return {**row, **extra}


def _versions(record: Record) -> dict[str, str]:
    found: dict[str, str] = {}
    for rank in record.ranks:
        found.update(rank.versions)
    if record.scene.driver:
        found["driver"] = record.scene.driver
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
