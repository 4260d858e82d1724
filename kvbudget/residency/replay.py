"""Which policy runs which kernel, with which numbers, and what its integers are called."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from kvbudget.errors import InputError
from kvbudget.residency import jit
from kvbudget.residency.ledger import COUNTERS, TRAFFIC
from kvbudget.residency.trace import Trace, parents


class Policy(StrEnum):
    """How the host pool is written; the names are those of the engines' flags."""

    lru = "lru"
    write_through = "write_through"
    write_through_selective = "write_through_selective"
    write_back = "write_back"
    exclusive = "exclusive"
    vllm_eager = "vllm_eager"
    vllm_lazy = "vllm_lazy"

    @classmethod
    def _missing_(cls, value: object) -> Policy:
        raise InputError(f"unknown policy {value!r}", "one of: " + ", ".join(cls))


TREE = frozenset({Policy.write_through, Policy.write_through_selective, Policy.write_back})
"""Policies of a radix tree with copies on both tiers; only these have a storage tier."""

MOST_BINS = 1_000_000
NEVER_FULL = 2**62


@dataclass(frozen=True, slots=True)
class Setup:
    """One cell: capacities in blocks (None: unlimited, 0: no tier) and the policy's numbers."""

    policy: Policy
    l1_blocks: int | None
    l2_blocks: int | None = 0
    l3_blocks: int | None = 0
    backup_invariant: str = "repair"
    inserts_per_request: int = 1
    prefetch_threshold: int = 256
    load_order: str = "tail_first"
    reinsert: bool = False
    step_blocks: int = 16
    target_free: int = 32

    def check(self) -> None:
        """Raises InputError for a cell that cannot be run."""
        if self.l1_blocks is not None and self.l1_blocks < 1:
            raise InputError("the device pool has no blocks", "give --l1 at least 1blk")
        if self.policy is Policy.lru and self.l2_blocks != 0:
            raise InputError("policy lru has one tier", "leave --l2 out, or choose another policy")
        if self.policy not in TREE and self.l3_blocks != 0:
            raise InputError(
                f"policy {self.policy} has no storage tier",
                "leave --l3 out, or choose write_through, write_through_selective or write_back",
            )
        if self.l3_blocks != 0 and self.l2_blocks == 0:
            raise InputError("a storage tier is reached through the host pool", "give --l2 as well")
        if self.inserts_per_request not in (1, 2):
            raise InputError("--inserts-per-request is 1 or 2", "0.5.23 counts once, before twice")
        if self.step_blocks < 1 or self.target_free < 0 or self.prefetch_threshold < 0:
            raise InputError("a negative or zero step", "give --lazy-step-blocks 1 or more")

    def as_config(self) -> dict[str, Any]:
        """What decides this cell's integers, for JSON; keys the policy ignores are left out."""
        every = asdict(self)
        keep = ["policy", "l1_blocks"]
        if self.policy is not Policy.lru:
            keep.append("l2_blocks")
        if self.policy in TREE:
            keep += ["backup_invariant", "inserts_per_request"]
            if self.l3_blocks != 0:
                keep += ["l3_blocks", "prefetch_threshold"]
        if self.policy is Policy.vllm_lazy:
            keep += ["load_order", "reinsert", "step_blocks", "target_free"]
        return {key: every[key] if key != "policy" else str(self.policy) for key in keep}


@dataclass(frozen=True, slots=True)
class Result:
    """The integers of one replay, and optionally what each time bin moved (blocks)."""

    setup: Setup
    counters: dict[str, int]
    bin_s: float = 0.0
    traffic: dict[str, list[int]] = field(default_factory=dict)

    @property
    def hit_blocks(self) -> int:
        return sum(self.counters[f"l{tier}_hit_blocks"] for tier in (1, 2, 3))


def replay(trace: Trace, setup: Setup, *, bin_s: float = 0.0) -> Result:
    """Run `trace` through `setup`. With bin_s > 0 the traffic of every such interval is kept."""
    from kvbudget.residency import lazy, pieces, write_back

    setup.check()
    blocks = trace.blocks
    cap1 = _cap(setup.l1_blocks, blocks)
    if setup.policy is Policy.vllm_lazy:  # never-used entries of the queue count: no rounding down
        cap1 = NEVER_FULL if setup.l1_blocks is None else setup.l1_blocks
    cap2 = _cap(setup.l2_blocks, blocks)
    cap3 = _cap(setup.l3_blocks, blocks)
    stat = jit.zeros(len(COUNTERS), "i8")
    bins, bin_of = _bins(trace, bin_s)
    traffic = jit.zeros(max(1, 4 * bins), "i8")
    ledger = (stat, bin_of, traffic, bins, jit.zeros(4, "i8"))
    columns = (trace.ids, trace.offsets, trace.lengths)
    size = trace.block_tokens

    def tier(count: int = blocks) -> tuple[Any, Any, Any]:
        return jit.zeros(count + 1), jit.zeros(count + 1), jit.zeros(count, "i1")

    def ends() -> Any:  # noqa: ANN401
        return jit.zeros(trace.requests)

    storage = (*tier(blocks if cap3 else 0), jit.zeros(1, "i8"))
    match setup.policy:
        case Policy.lru | Policy.exclusive:
            pieces.replay_exclusive(
                *columns, size, cap1, cap2, jit.zeros(blocks), ends(), ends(), ends(), *ledger
            )
        case Policy.vllm_eager:
            pieces.replay_eager(
                *columns, size, cap1, cap2, jit.zeros(blocks), ends(), ends(), ends(), *ledger
            )
        case Policy.vllm_lazy:
            lazy.replay_lazy(
                *columns, blocks, size, cap1, cap2, setup.step_blocks, setup.target_free,
                int(setup.load_order == "head_first"), int(setup.reinsert),
                *tier(), *tier(), jit.zeros(min(setup.target_free, blocks) + 1), *ledger,
            )  # fmt: skip
        case Policy.write_back:
            write_back.replay_write_back(
                *columns, parents(trace), blocks, size, cap1, cap2, cap3,
                setup.prefetch_threshold, *tier(), *tier(), *storage,
                jit.zeros(blocks), jit.zeros(2 * blocks), jit.zeros(2, "i8"), jit.zeros(blocks),
                jit.zeros(blocks, "i8"), jit.zeros(blocks, "i1"), *ledger,
            )  # fmt: skip
        case _:
            pieces.replay_write_through(
                *columns, size, cap1, cap2, cap3, setup.prefetch_threshold,
                2 if setup.policy is Policy.write_through_selective else 1,
                setup.inserts_per_request, jit.zeros(blocks), ends(), ends(), ends(),
                *storage, *ledger,
            )  # fmt: skip
    counters = {name: int(value) for name, value in zip(COUNTERS, stat, strict=True)}
    rows = {
        name: [int(v) for v in traffic[k * bins : (k + 1) * bins]]
        for k, name in enumerate(TRAFFIC)
        if bins
    }
    return Result(setup, counters, bin_s if bins else 0.0, rows)


def _cap(capacity: int | None, blocks: int) -> int:
    """A capacity above the number of distinct blocks is never filled: an unlimited one is that."""
    return blocks + 1 if capacity is None else min(capacity, blocks + 1)


def _bins(trace: Trace, bin_s: float) -> tuple[int, Any]:
    if bin_s <= 0 or trace.requests == 0:
        return 0, jit.zeros(1)
    start, width = int(trace.times_us[0]), round(bin_s * 1e6)
    if (int(trace.times_us[-1]) - start) // width >= MOST_BINS:
        raise InputError(
            f"the trace spans more than {MOST_BINS:,} intervals of {bin_s:g} s",
            "its timestamps are not in the unit the format says",
        )
    if jit.COMPILED:
        at = ((trace.times_us - start) // width).astype("i4")
        return int(at[-1]) + 1, at
    plain = [(t - start) // width for t in trace.times_us]
    return plain[-1] + 1, plain
