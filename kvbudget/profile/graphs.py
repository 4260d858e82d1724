"""Which graphs an engine captures, and the two-sample rule it estimates their memory by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MIB = 2**20


def ladder(requests: int, *, largest: int = 512) -> list[int]:
    """Batch sizes of decode graphs for max_num_seqs = `requests`, ascending.

    1, 2, 4, 8 .. 248 by 8, 256 .. by 16, up to min(2 x requests, largest): vLLM 0.33.
    """
    limit = min(2 * requests, largest)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, limit + 1, 16)]
    return [size for size in sizes if size <= limit]


def estimate(samples: Sequence[int], count: int) -> int:
    """Bytes of `count` graphs from the first one or two captured (largest first).

    The first pays for the pool, every other one costs what the second did, at least 1 MiB.
    """
    if not samples or count == 0:
        return 0
    first = max(samples[0], 0)
    if count == 1 or len(samples) == 1:
        return first
    return first + max(samples[1], MIB) * (count - 1)
