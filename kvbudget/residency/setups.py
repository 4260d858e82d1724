"""From options to one cell: sizes to blocks, a release to its counting rules."""

from __future__ import annotations

from kvbudget.errors import InputError
from kvbudget.residency.replay import TREE, Policy, Setup
from kvbudget.residency.sizes import blocks_of

INVARIANTS = ("repair", "refuse")
LOAD_ORDERS = ("tail_first", "head_first")


def make_setup(
    block_tokens: int,
    bytes_per_token: int | None,
    policy: Policy,
    l1: str,
    l2: str | None,
    l3: str | None,
    *,
    engine_version: str | None = None,
    backup_invariant: str | None = None,
    inserts_per_request: int | None = None,
    prefetch_threshold: int = 256,
    load_order: str = "tail_first",
    reinsert: bool = False,
    step_blocks: int = 16,
    target_free: int = 32,
    running_tokens: int = 0,
) -> tuple[Setup, list[str]]:
    """One checked cell and what to tell about it. Raises InputError."""
    notes: list[str] = []
    if backup_invariant not in (None, *INVARIANTS):
        raise InputError(f"unknown invariant {backup_invariant!r}", "repair or refuse")
    if load_order not in LOAD_ORDERS:
        raise InputError(f"unknown load order {load_order!r}", "tail_first or head_first")
    rules = None
    if engine_version:
        from kvbudget.residency.versions import engine_rules

        rules = engine_rules(engine_version)
    invariant = backup_invariant or (rules.backup_invariant if rules else None) or "repair"
    inserts = inserts_per_request or (rules.inserts_per_request if rules else None) or 1
    if rules and rules.note and policy in TREE and backup_invariant is None:
        notes.append(rules.note)
    first = blocks_of(l1, block_tokens, bytes_per_token)
    if first is not None and running_tokens:
        first -= -(-running_tokens // block_tokens)
    second = 0 if l2 is None else blocks_of(l2, block_tokens, bytes_per_token)
    third = 0 if l3 is None else blocks_of(l3, block_tokens, bytes_per_token)
    setup = Setup(
        policy, first, second, third, invariant, inserts, prefetch_threshold, load_order,
        reinsert, step_blocks, target_free,
    )  # fmt: skip
    setup.check()
    return setup, notes + warnings(setup)


def warnings(setup: Setup) -> list[str]:
    """What about a cell tends to surprise."""
    notes: list[str] = []
    first, second = setup.l1_blocks, setup.l2_blocks
    if (
        setup.policy in (Policy.write_through, Policy.vllm_eager)
        and second != 0
        and second is not None
        and (first is None or second <= first)
    ):
        notes.append(
            f"L2 <= L1 under {setup.policy}: the host pool only ever holds copies of what is on "
            "the device; it cannot hit, and every write is wasted"
        )
    if setup.policy is Policy.write_through_selective and setup.inserts_per_request == 1:
        notes.append(
            "write_through_selective backs up at the first reuse on the device: what does not "
            "come back within the L1 window never reaches the host"
        )
    if setup.policy is Policy.write_through_selective and setup.inserts_per_request == 2:
        notes.append("two inserts per request make write_through_selective equal write_through")
    if setup.policy is Policy.vllm_lazy and setup.reinsert:
        notes.append(
            "reinsertion at the MRU end was read from source, not observed on a running engine"
        )
    if setup.policy is Policy.exclusive:
        notes.append("exclusive is the textbook ideal: no engine does it")
    return notes
