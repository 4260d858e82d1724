"""Rules on the fraction of the free memory and what it reserves (GATE060-065)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.gate.facts import context_bytes, default_fraction, total_bytes, version_in
from kvbudget.gate.finding import Bench, place
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.gate.invocation import Invocation

F = "mem_fraction_static"


def fraction(bench: Bench, inv: Invocation) -> None:
    """All rules of the section on one process."""
    f = inv.get(F)
    explicit = isinstance(f, (int, float))
    if explicit:
        _above(bench, inv, float(f))
    chunk = inv.get("chunked_prefill_size")
    if isinstance(chunk, int):
        at = place(inv, "chunked_prefill_size")
        if explicit and chunk > bench.parameter("GATE061", "max_chunk"):
            bench.add("GATE061", inv, at["line"], f"a chunk of {chunk} tokens with a fixed fraction: the formula would reserve 1.5 MiB a token more",
                      file=at["file"], value=chunk)  # fmt: skip
        if chunk == -1:
            bench.add("GATE062", inv, at["line"], "chunking off: the default reserve becomes 1.5 MiB x max_prefill_tokens",
                      file=at["file"])  # fmt: skip
    speculative = inv.get("speculative_algorithm")
    if explicit and speculative and version_in(inv, "<0.5.15"):
        at = place(inv, "speculative_algorithm")
        bench.add(
            "GATE063",
            inv,
            at["line"],
            "the draft model's KV is in no budget of this release",
            file=at["file"],
        )
    if inv.get("enable_symm_mem"):
        at = place(inv, "enable_symm_mem")
        bench.add(
            "GATE064",
            inv,
            at["line"],
            "symmetric memory takes 4 GiB outside the reserve",
            file=at["file"],
        )
    if inv.get("enable_dp_attention") and explicit:
        at = place(inv, "enable_dp_attention")
        bench.add(
            "GATE065",
            inv,
            at["line"],
            "graphs under DP attention are in the default reserve only",
            file=at["file"],
        )


def _above(bench: Bench, inv: Invocation, f: float) -> None:
    at = place(inv, F)
    top = bench.parameter("GATE060", "max_mem_fraction_static")
    chosen = default_fraction(inv)
    total = total_bytes(inv)
    if (
        chosen is not None
        and total is not None
        and f > chosen + bench.parameter("GATE060", "tolerance")
    ):
        lost = (f - chosen) * (total - context_bytes(inv)) / GIB
        bench.add("GATE060", inv, at["line"],
                  f"{F}={f:g} is above the {chosen:.3f} this release would choose on this card: {lost:.1f} GiB less reserve",
                  file=at["file"], value=f, default=chosen)  # fmt: skip
    elif f > top:
        bench.add("GATE060", inv, at["line"], f"{F}={f:g} leaves {1 - f:.2f} of the free memory for graphs and activations",
                  file=at["file"], value=f)  # fmt: skip
