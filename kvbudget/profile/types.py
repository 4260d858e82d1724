"""Plain data of a profile: scenes, snapshots, terms, failures. Integer bytes; no torch in here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import msgspec

from kvbudget.errors import InputError
from kvbudget.model.parts import Ranks

RECORD_SCHEMA = "kvbudget.profile-record/1"

PHASES = (
    "before", "context", "nccl", "handles", "baseline", "weights", "reset", "forward", "sampler",
    "after", "graphs", "free", "exit",
)  # fmt: skip
"""In order. `before` and `exit` are read by the parent, outside any context."""

Source = Literal["measured", "modelled", "engine_log"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading at the end of a phase; bytes, None where the device cannot say."""

    phase: str
    driver_free: int | None = None
    driver_total: int | None = None
    torch_allocated: int | None = None
    torch_reserved: int | None = None
    torch_peak: int | None = None
    nvml_used: int | None = None
    seconds: float | None = None
    extra: dict[str, int] = field(default_factory=dict)

    def need(self, name: str) -> int:
        """A reading that the arithmetic cannot do without. Raises InputError where it is absent."""
        value = getattr(self, name)
        if value is None:
            raise InputError(f"phase {self.phase} has no {name}", "record the profile again")
        return int(value)


@dataclass(frozen=True, slots=True)
class Failure:
    """A phase that ran out of memory (kind `oom`) or ended otherwise (kind `child`, `timeout`)."""

    phase: str
    kind: str
    requested: int | None = None
    free: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """The device as it is before any context of ours."""

    kind: str
    name: str | None = None
    uuid: str | None = None
    total_memory: int | None = None
    reserved_memory: int | None = None
    other_memory: int | None = None
    mig: bool | None = False
    integrated: bool | None = False
    driver: str | None = None
    ecc: bool | None = None
    sm_count: int | None = None
    compute_capability: str | None = None
    wsl: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileTerm:
    """One row of a rank's budget."""

    name: str
    value: int | None
    low: int | None
    high: int | None
    source: Source
    note: str = ""

    @classmethod
    def measured(cls, name: str, value: int, note: str = "") -> ProfileTerm:
        return cls(name, value, value, value, "measured", note)


@dataclass(frozen=True, slots=True)
class Job:
    """What to profile. `tokens`: max_num_batched_tokens, `requests`: max_num_seqs.

    ep: ranks the routed experts are spread over. runner: own or hf. load: dummy or safetensors.
    assume: fields the user states that config.json lacks. defaulted: what was left to the engine.
    capacity: total bytes of the device to judge by where none is present (None: this machine's).
    """

    model: str
    device: str = "cpu"
    policy: str = "vllm@0.33.0"
    tokens: int = 2048
    requests: int = 256
    utilization: float = 0.9
    tp: int = 1
    pp: int = 1
    ep: int = 1
    runner: str = "own"
    load: str = "dummy"
    graphs: bool = True
    all_graphs: bool = False
    dtype: str = "auto"
    capacity: int | None = None
    card: str | None = None
    decode_steps: int = 0
    device_index: int = 0
    defaulted: str = ""
    assume: dict[str, Any] = field(default_factory=dict)

    @property
    def shares(self) -> Ranks:
        """How the ranks of a stage share the model's tensors."""
        return Ranks(self.tp, ep=self.ep)

    def rank_name(self, rank: int) -> str:
        """As engines name it in their logs: `TP1`, or `PP0_TP1` where there are stages."""
        tensor = f"TP{rank % self.tp}"
        return tensor if self.pp == 1 else f"PP{rank // self.tp}_{tensor}"


@dataclass(slots=True)
class RankRecord:
    """Everything one rank read, enough to do all arithmetic again."""

    rank: str
    snapshots: list[Snapshot] = field(default_factory=list)
    failure: Failure | None = None
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    stage: int = 0

    def at(self, phase: str) -> Snapshot | None:
        return next((s for s in self.snapshots if s.phase == phase), None)


@dataclass(slots=True)
class Record:
    """A profile as recorded: the job, the scene, the ranks."""

    job: Job
    scene: Scene
    ranks: list[RankRecord] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"schema": RECORD_SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Record:
        """Raises InputError for another schema or a broken record."""
        if raw.get("schema") != RECORD_SCHEMA:
            raise InputError(
                f"not a profile record of a known schema: {raw.get('schema')!r}",
                f"this kvbudget replays {RECORD_SCHEMA}",
            )
        try:
            return msgspec.convert(raw, cls)
        except msgspec.ValidationError as exc:
            raise InputError(f"broken profile record: {exc}", "record the profile again") from exc
