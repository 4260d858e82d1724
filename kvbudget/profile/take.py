"""Takes a record: the parent's part of a profile, without torch."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.gpu.nvml import NoDevice
from kvbudget.profile.device import TRACKED
from kvbudget.profile.host import is_wsl
from kvbudget.profile.ranks import run_ranks
from kvbudget.profile.types import Record, Scene, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.gpu.nvml import GpuSnapshot, Nvml
    from kvbudget.profile.types import Job

SETTLE_READS = 20
"""How often the device is read, every 0.1 s, until it is as full as it was before."""


def need_torch() -> None:
    """Raises InputError (exit 2) where torch is not installed; does not import it."""
    try:
        found = find_spec("torch") is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise InputError("kvbudget profile needs PyTorch", 'pip install "kvbudget[profile]"')


def take_record(
    job: Job, *, timeout: float, on_phase: Callable[[str], None] | None = None
) -> Record:
    """Run the profile in fresh processes and return everything that was read.

    Raises InputError without torch, driver or device.
    """
    need_torch()
    if job.device in TRACKED:
        return _take_tracked(job, timeout, on_phase)
    from kvbudget.gpu.nvml import open_nvml

    with open_nvml() as nvml:
        before = pick_cards(nvml, job, os.environ.get("CUDA_VISIBLE_DEVICES"))
        envs = {
            rank: {"CUDA_VISIBLE_DEVICES": str(card.uuid or card.index)}
            for rank, card in enumerate(before)
        }
        if on_phase:
            on_phase("before")
        ranks, inner = run_ranks(job, envs, timeout=timeout, on_phase=on_phase)
        if on_phase:
            on_phase("exit")
        for rank, card in zip(ranks, before, strict=True):
            rank.snapshots.insert(0, Snapshot("before", nvml_used=card.used))
            rank.snapshots.append(Snapshot("exit", nvml_used=_used_after(nvml, card)))
    return Record(job, _scene(before[0], inner), ranks)


def _take_tracked(job: Job, timeout: float, on_phase: Callable[[str], None] | None) -> Record:
    """One rank of every pipeline stage, one after the other so that they do not add up."""
    record = None
    for stage in range(job.pp):
        ranks, scene = run_ranks(job, {stage * job.tp: {}}, timeout=timeout, on_phase=on_phase)
        if job.tp > 1:
            ranks[0].notes.append(
                f"one of {job.tp} tensor-parallel ranks was measured: their shapes are equal"
            )
        if record is None:
            record = Record(job, scene)
        record.ranks += ranks
        if ranks[0].failure is not None:
            break
    assert record is not None
    return record


def pick_cards(nvml: Nvml, job: Job, visible: str | None) -> list[GpuSnapshot]:
    """One device per rank, from `job.device_index` on.

    visible: CUDA_VISIBLE_DEVICES as the user set it. Raises NoDevice where there are too few,
    InputError where MIG slices would have to talk to each other.
    """
    wanted = job.tp * job.pp
    devices = nvml.visible(visible)
    chosen = devices[job.device_index : job.device_index + wanted]
    if len(chosen) < wanted:
        seen = f" (CUDA_VISIBLE_DEVICES={visible})" if visible is not None else ""
        raise NoDevice(
            f"{wanted} device(s) from number {job.device_index} on are needed, "
            f"{len(devices)} can be used{seen}", "see nvidia-smi -L",
        )  # fmt: skip
    cards = [nvml.snapshot(device) for device in chosen]
    if wanted > 1 and any(card.mig for card in cards):
        raise InputError(
            "MIG slices cannot serve several ranks: NCCL does not connect them",
            "profile one rank, or a card without MIG",
        )
    return cards


def _used_after(nvml: Nvml, card: GpuSnapshot) -> int | None:
    """Bytes in use once the driver has taken back what our process held; waits two seconds."""
    used = None
    for _ in range(SETTLE_READS):
        used = nvml.used(card.uuid or card.index)
        if used is None or card.used is None or used <= card.used:
            break
        time.sleep(0.1)
    return used


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
