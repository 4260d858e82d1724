"""The whole profile: the parent's part (no torch here), the budgets of all ranks, the document."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget.errors import EXIT_EVIDENCE, EXIT_FINDINGS, EXIT_OK, InputError
from kvbudget.profile.host import is_wsl
from kvbudget.profile.split import RankBudget, split
from kvbudget.profile.types import Record, Scene, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.gpu.nvml import GpuSnapshot, Nvml
    from kvbudget.model.config import Model
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.types import Job

BUNDLED = Path(__file__).with_name("models")
TRACKED = ("cpu", "fake")


def bundled_model(text: str) -> str:
    """`tiny` names the model shipped with kvbudget, unless there is a file of that name."""
    if text.isidentifier() and (BUNDLED / text).is_dir() and not Path(text).exists():
        return str(BUNDLED / text)
    return text


def pick_device(text: str) -> tuple[str, int]:
    """(`cuda`, N) or (`cpu` | `fake`, 0). `auto`: the first NVIDIA device, else the CPU.

    Raises InputError for anything else.
    """
    kind, _, number = text.partition(":")
    if kind == "auto":
        from kvbudget.gpu.nvml import open_nvml

        try:
            with open_nvml() as nvml:
                return ("cuda", 0) if nvml.count() else ("cpu", 0)
        except InputError:
            return "cpu", 0
    if kind not in ("cuda", *TRACKED) or (number and (kind != "cuda" or not number.isdigit())):
        raise InputError(f"unknown device {text!r}", "one of: auto, cuda, cuda:N, cpu, fake")
    return kind, int(number or 0)


def need_torch() -> None:
    """Raises InputError (exit 2) where torch is not installed; does not import it."""
    if find_spec("torch") is None:
        raise InputError("kvbudget profile needs PyTorch", 'pip install "kvbudget[profile]"')


def take_record(
    job: Job, *, timeout: float, on_phase: Callable[[str], None] | None = None
) -> Record:
    """Run the profile in fresh processes and return everything that was read.

    Raises InputError without torch, driver or device.
    """
    from kvbudget.profile.ranks import run_ranks

    need_torch()
    if job.device in TRACKED:
        ranks, scene = run_ranks(job, [{}], timeout=timeout, on_phase=on_phase)
        if job.tp > 1:
            ranks[0].notes.append(f"TP0 stands for all {job.tp} ranks: their shapes are equal")
        return Record(job, scene, ranks)
    from kvbudget.gpu.nvml import open_nvml

    with open_nvml() as nvml:
        before = [_card(nvml, job.device_index + n) for n in range(job.tp)]
        envs = [{"CUDA_VISIBLE_DEVICES": str(c.uuid or c.index)} for c in before]
        if on_phase:
            on_phase("before")
        ranks, inner = run_ranks(job, envs, timeout=timeout, on_phase=on_phase)
        if on_phase:
            on_phase("exit")
        for rank, card in zip(ranks, before, strict=True):
            rank.snapshots.insert(0, Snapshot("before", nvml_used=card.used))
            used = nvml.used(card.uuid or card.index)
            rank.snapshots.append(Snapshot("exit", nvml_used=used))
    return Record(job, _scene(before[0], inner), ranks)


def _card(nvml: Nvml, index: int) -> GpuSnapshot:
    """The card, or its only MIG slice. Raises NoDevice."""
    card = nvml.snapshot(index)
    slices = nvml.mig_slices(index) if card.is_mig_parent else []
    return nvml.snapshot(slices[0]) if slices else card


def _scene(card: GpuSnapshot, inner: Scene) -> Scene:
    notes = list(card.notes)
    if is_wsl():
        notes.append("WSL: the driver may move memory to the host, the margin is not reliable")
    if card.processes:
        notes.append(f"{len(card.processes)} other process(es) on the device before the start")
    return replace(
        inner, name=card.name or inner.name, uuid=card.uuid, total_memory=card.total or
        inner.total_memory, reserved_memory=card.reserved, other_memory=card.used, mig=card.mig,
        integrated=card.integrated or bool(inner.integrated), driver=card.driver, ecc=card.ecc,
        wsl=is_wsl(), notes=(*inner.notes, *notes),
    )  # fmt: skip


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
    worst = min(budgets, key=lambda b: b.result["kv_cache_memory"] or 0, default=None)
    stable = all(b.stable for b in budgets)
    notes = [*scene.notes, *policy.notes, *model.notes]
    for rank in record.ranks:
        notes += rank.notes
    for budget in budgets:
        notes += budget.notes
    findings = _compare(worst, model, job, policy, record) if worst else []
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
            "graphs": job.graphs,
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
        "modelled": findings,
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


def _compare(
    worst: RankBudget, model: Model, job: Job, policy: Policy, record: Record
) -> list[dict[str, Any]]:
    """The modelled terms beside the measured ones; `agrees` is null where nothing was measured."""
    from kvbudget.model.activation import Batch
    from kvbudget.model.eras import Setting, choose, constants
    from kvbudget.model.estimate import estimate
    from kvbudget.units import GIB

    card = None
    if job.card is not None:
        from kvbudget.derive.catalogue import find_gpu

        card = find_gpu(job.card)
    setting = Setting(
        policy.engine, policy.version, tp=job.tp, peer=card.peer if card else None,
        compute_capability=record.scene.compute_capability
        or (card.compute_capability if card else None),
    )  # fmt: skip
    sms = record.scene.sm_count or (card.sm_count if card else None)
    terms = estimate(
        model, setting, Batch(job.tokens, job.requests, sm_count=sms), eager=not job.graphs
    )
    tracked = record.scene.kind in TRACKED
    kept = choose(setting, "residue_gib") if "residue_gib" in constants(policy.engine) else None
    residue = int(max(kept["sampler"], kept["forward"]) * GIB) if kept else 0
    rows = []
    for name in ("weights_memory", "peak_activation_memory", "non_torch_memory",
                 "cuda_graph_memory", "context_memory"):  # fmt: skip
        if name not in terms:
            continue
        amount = terms[name].amount
        measured = next((t for t in worst.terms if t.name == name), None)
        value = measured.value if measured and measured.source == "measured" else None
        comparable = value is not None and (record.scene.kind == "cuda" or name in (
            "weights_memory", "peak_activation_memory"))  # fmt: skip
        low = max(0, int(amount.low))
        if tracked and name == "peak_activation_memory":
            low = max(0, low - residue)  # the mirror keeps no engine's small persistent buffers
        rows.append({
            "name": name, "measured": value, "value": int(amount.value), "low": low,
            "high": int(amount.high),
            "agrees": low <= value <= amount.high if comparable and value is not None else None,
            "formula": terms[name].formula,
        })  # fmt: skip
    return rows
