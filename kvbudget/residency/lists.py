"""Doubly linked lists in flat arrays, for tiers whose order is not that of the requests.

`nxt`/`prv` hold dense block numbers; a list's sentinel is an index no block has: nxt[sentinel] is
the oldest entry, prv[sentinel] the newest.
"""

from __future__ import annotations

from typing import Any

from kvbudget.residency.jit import kernel

Array = Any


@kernel
def unlink(nxt: Array, prv: Array, b: int) -> None:
    """Take block `b` out of a list."""
    n = nxt[b]
    p = prv[b]
    nxt[p] = n
    prv[n] = p


@kernel
def append(nxt: Array, prv: Array, end: int, b: int) -> None:
    """Put block `b` at the newest end of a list whose sentinel is `end`."""
    p = prv[end]
    nxt[p] = b
    prv[b] = p
    nxt[b] = end
    prv[end] = b


@kernel
def store(nxt: Array, prv: Array, inside: Array, end: int, room: int, used: Array, b: int) -> int:
    """Write block `b` to storage once; -> blocks written. A full queue gives up its first."""
    if room == 0 or inside[b]:
        return 0
    if used[0] == room:
        old = nxt[end]
        unlink(nxt, prv, old)
        inside[old] = 0
        used[0] -= 1
    inside[b] = 1
    append(nxt, prv, end, b)
    used[0] += 1
    return 1
