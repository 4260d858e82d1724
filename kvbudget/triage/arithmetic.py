"""The sum that an allocator sentence allows: where the card's bytes are at the moment of failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvbudget.triage.sentence import Sentence


def rows(sentence: Sentence | None) -> list[dict[str, Any]]:
    """Rows of {name, label, value (bytes), source}: capacity first, then what it is spent on.

    `source` is printed or derived. Private graph pools are part of what torch has allocated and
    carry `part_of`. The last row is the request.
    """
    if sentence is None or sentence.total is None:
        return []
    found: list[dict[str, Any]] = []

    def add(name: str, label: str, value: int | None, source: str, **more: str) -> None:
        if value is not None:
            found.append({"name": name, "label": label, "value": value, "source": source, **more})

    add("capacity", "the card", sentence.total, "printed")
    add("torch_allocated", "allocated by torch", sentence.allocated, "printed")
    add(
        "graph_pools",
        "of which private pools",
        sentence.pools,
        "printed",
        part_of="torch_allocated",
    )
    unallocated = sentence.unallocated
    add(
        "reserved_unallocated", "reserved by torch, not allocated", unallocated,
        "printed" if sentence.printed_unallocated is not None else "derived",
    )  # fmt: skip
    if sentence.listed or sentence.this_process is not None:
        others = sentence.others
        if others:
            add("other_processes", "other processes", others, "derived")
    outside = sentence.outside_torch
    if outside is not None:
        label = "outside torch: context, libraries, anything not listed"
        if outside < -sentence.slack:
            label = "more than the card: spilled to host memory, or another process's view"
        add("outside_torch", label, outside, "derived")
    add("free", "free", sentence.free, "printed")
    add("request", "asked for", sentence.request, "printed")
    return found
