"""The figures of one allocator sentence, and the sums they allow. All sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.facts import Fact


@dataclass(frozen=True)
class Sentence:
    """What the sentence printed; None where it did not. `others` are processes it lists."""

    request: int | None = None
    total: int | None = None
    free: int | None = None
    this_process: int | None = None
    listed: tuple[int, ...] = ()
    allocated: int | None = None
    reserved: int | None = None
    pools: int | None = None
    printed_unallocated: int | None = None
    slack: int = 0
    """how far the rounding of the printed figures may move a sum"""

    @classmethod
    def of(cls, facts: dict[str, list[Fact]]) -> Sentence:
        """From the facts of one record."""

        def one(name: str) -> int | None:
            found = facts.get(name)
            return int(found[0].value) if found else None

        used = [f for name, many in facts.items() if name.startswith("oom.") for f in many]
        slack = sum(
            max(1, int(f.high) - int(f.value)) for f in used if f.unit == "B" and f.high is not None
        )
        said = cls(
            one("oom.tried_to_allocate"),
            one("oom.total_memory"),
            one("oom.free"),
            one("oom.process_in_use"),
            tuple(int(f.value) for f in facts.get("oom.listed_process_in_use", ())),
            one("oom.torch_allocated"),
            one("oom.torch_reserved"),
            one("oom.graph_pools"),
            one("oom.reserved_unallocated"),
            slack,
        )
        return replace(said, this_process=None) if said._not_its_own else said

    @property
    def _not_its_own(self) -> bool:
        """Less than torch holds on a card that holds it: in a container the driver finds no such pid."""
        torch = self.torch
        if torch is None or self.this_process is None:
            return False
        return self.this_process + self.slack < torch <= (self.total or torch)

    @property
    def has_figures(self) -> bool:
        return self.request is not None and self.total is not None

    @property
    def unallocated(self) -> int | None:
        """Reserved by torch but unallocated: printed, or reserved minus allocated."""
        if self.printed_unallocated is not None:
            return self.printed_unallocated
        if self.reserved is not None and self.allocated is not None:
            return max(0, self.reserved - self.allocated)
        return None

    @property
    def torch(self) -> int | None:
        """What torch holds: allocated plus unallocated."""
        if self.reserved is not None:
            return self.reserved
        if self.allocated is None:
            return None
        return self.allocated + (self.unallocated or 0)

    @property
    def own(self) -> int | None:
        """What this process holds. A listed process is this one when it comes nearest above torch."""
        if self.this_process is not None:
            return self.this_process
        torch = self.torch
        if torch is None:
            return None
        near = [
            n
            for n in self.listed
            if n >= torch - self.slack and n - torch <= (self.total or n) // 4
        ]
        return min(near) if near else torch

    @property
    def others(self) -> int | None:
        """What other processes hold: listed ones that are not this, or what the sums leave."""
        own = self.own
        if own is None:
            return None
        if self.listed:
            listed = list(self.listed)
            if self.this_process is None and own in listed:
                listed.remove(own)
            return sum(listed)
        if self.total is None or self.free is None:
            return None
        rest = self.total - self.free - own
        return rest if rest > self.slack else 0

    @property
    def outside_torch(self) -> int | None:
        """In use on the card, not torch's, not another listed process's: context and libraries."""
        torch = self.torch
        if self.total is None or self.free is None or torch is None:
            return None
        other = (self.others or 0) if self.listed or self.this_process is not None else 0
        return self.total - self.free - torch - other
