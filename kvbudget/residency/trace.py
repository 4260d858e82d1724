"""A trace in columns: what was asked for, when, and which prefix blocks it consists of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.residency import jit
from kvbudget.residency.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = Any

DUPLICATE, TWO_PARENTS, UNSORTED, NEGATIVE = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in file order.

    `ids` are dense block numbers (0..blocks-1 in order of first appearance), `offsets` where each
    request's chain starts (one more entry than requests), `lengths` its prompt tokens, `times_us`
    when it arrived (microseconds from any origin). `block_tokens` is the size of one block.
    """

    ids: Array
    offsets: Array
    lengths: Array
    times_us: Array
    blocks: int
    block_tokens: int
    name: str = "-"
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def requests(self) -> int:
        return len(self.offsets) - 1

    @property
    def accesses(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """Prompt tokens of all requests."""
        total = self.lengths.sum() if jit.COMPILED else sum(self.lengths)
        return int(total)

    @property
    def span_s(self) -> float:
        """Seconds from the first request to the last; 0 for an empty trace."""
        if not self.requests:
            return 0.0
        return (int(self.times_us[-1]) - int(self.times_us[0])) / 1e6

    def summary(self) -> dict[str, Any]:
        """The `trace` object of every residency JSON."""
        return {
            "requests": self.requests,
            "block_accesses": self.accesses,
            "tokens": self.tokens,
            "unique_blocks": self.blocks,
            "span_s": self.span_s,
            "block_tokens": self.block_tokens,
        }


def column(values: Sequence[int], kind: str) -> Array:
    """A column as kernels want it: a numpy array when compiled, else a list."""
    if not jit.COMPILED:
        return list(values)
    import numpy as np

    return np.asarray(values, dtype=kind)


@kernel
def densify(raw: Array, table: Array, out: Array) -> int:
    """Small whole-number ids -> dense numbers in order of first appearance; -> how many.

    `table` has one zero per possible id.
    """
    n = 0
    for i in range(len(raw)):
        v = raw[i]
        t = table[v]
        if t == 0:
            n += 1
            t = n
            table[v] = t
        out[i] = t - 1
    return n


@kernel
def check_chains(
    ids: Array, off: Array, lengths: Array, times: Array, parent: Array, seen: Array, bad: Array
) -> int:
    """Fill `parent` (-1 at a root) and find the first broken rule; -> its code or 0.

    `parent` starts as -2, `seen` as -1. bad receives the request and the position in its chain.
    """
    for r in range(len(off) - 1):
        before = -1
        bad[0] = r
        if lengths[r] < 0:
            return NEGATIVE
        if r > 0 and times[r] < times[r - 1]:
            return UNSORTED
        for i in range(off[r], off[r + 1]):
            b = ids[i]
            bad[1] = i - off[r]
            if seen[b] == r:
                return DUPLICATE
            seen[b] = r
            if parent[b] == -2:
                parent[b] = before
            elif parent[b] != before:
                return TWO_PARENTS
            before = b
    return 0


def parents(trace: Trace) -> Array:
    """The parent block of each block, -1 for the first of a chain."""
    parent = jit.zeros(trace.blocks)
    seen = jit.zeros(trace.blocks)
    for b in range(trace.blocks) if not jit.COMPILED else ():
        parent[b], seen[b] = -2, -1
    if jit.COMPILED:
        parent[:] = -2
        seen[:] = -1
    check_chains(
        trace.ids, trace.offsets, trace.lengths, trace.times_us, parent, seen, jit.zeros(2, "i8")
    )
    return parent


def build(
    raw: Array,
    offsets: Array,
    lengths: Array,
    times_us: Array,
    *,
    block_tokens: int,
    name: str,
    lines: Array | None = None,
    sort: bool = False,
    notes: tuple[str, ...] = (),
) -> Trace:
    """Columns with any non-negative ids -> a checked Trace.

    Raises InputError with the line (or request) of the first broken rule: a negative length,
    times that go back, an id twice in a chain, an id with two parents.
    """
    if sort:
        raw, offsets, lengths, times_us, lines = _by_time(raw, offsets, lengths, times_us, lines)
    ids, blocks = _dense(raw)
    if jit.COMPILED:  # read-only like columns mapped from disk: one compilation serves both
        for values in (ids, offsets, lengths, times_us):
            values.flags.writeable = False
    trace = Trace(ids, offsets, lengths, times_us, blocks, block_tokens, name, notes)
    parent, seen = jit.zeros(blocks), jit.zeros(blocks)
    if jit.COMPILED:
        parent[:] = -2
        seen[:] = -1
    else:
        parent, seen = [-2] * blocks, [-1] * blocks
    bad = jit.zeros(2, "i8")
    code = check_chains(ids, offsets, lengths, times_us, parent, seen, bad)
    if code:
        request, place = int(bad[0]), int(bad[1])
        line = int(lines[request]) if lines is not None else request + 1
        block = raw[int(offsets[request]) + place] if code in (DUPLICATE, TWO_PARENTS) else None
        raise InputError(f"{name}:{line}: {_RULES[code].format(block=block)}", _HINTS[code])
    return trace


_RULES = {
    DUPLICATE: "block id {block} occurs twice in one chain",
    TWO_PARENTS: "block id {block} follows two different blocks; an id names its whole prefix",
    UNSORTED: "the timestamp is earlier than the one before it",
    NEGATIVE: "a negative length",
}
_HINTS = {
    DUPLICATE: "a chain names each of its blocks once: correct the trace",
    TWO_PARENTS: "if ids are only unique below their parent, say --local-ids",
    UNSORTED: "sort the trace by time, or say --sort",
    NEGATIVE: "input_length counts prompt tokens: 0 or more",
}


def _dense(raw: Array) -> tuple[Array, int]:
    if not jit.COMPILED:
        order = list(dict.fromkeys(raw))
        if order == list(range(len(order))):
            return raw, len(order)
        number = dict(zip(order, range(len(order)), strict=True))
        return [number[v] for v in raw], len(order)
    import numpy as np

    if len(raw) == 0:
        return np.zeros(0, np.uint32), 0
    out = np.empty(len(raw), np.uint32)
    top = int(raw.max())
    if int(raw.min()) < 0 or top > 8 * len(raw) + 4096:
        _, first, inverse = np.unique(raw, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.uint32)
        rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.uint32)
        return rank[inverse.reshape(-1)], len(first)
    blocks = densify(raw, np.zeros(top + 1, np.int32), out)
    return out, int(blocks)


def _by_time(
    raw: Array, offsets: Array, lengths: Array, times_us: Array, lines: Array | None
) -> tuple[Array, Array, Array, Array, Array]:
    order = sorted(range(len(lengths)), key=lambda r: int(times_us[r]))
    ids: list[int] = []
    starts = [0]
    for r in order:
        ids.extend(int(v) for v in raw[int(offsets[r]) : int(offsets[r + 1])])
        starts.append(len(ids))
    where = [int(lines[r]) if lines is not None else r + 1 for r in order]
    return (
        column(ids, "i8"),
        column(starts, "i8"),
        column([int(lengths[r]) for r in order], "i8"),
        column([int(times_us[r]) for r in order], "i8"),
        where,
    )
