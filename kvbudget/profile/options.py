"""The options of `kvbudget profile`, as the command line gave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Options:
    """None: not given. utilization: a fraction; timeout: seconds of silence."""

    model: str | None
    device: str
    engine: str
    policy: str | None
    runner: str
    load_format: str
    tokens: int | None
    requests: int | None
    utilization: float | None
    tp: int
    pp: int
    expert_parallel: bool
    dtype: str
    assume: tuple[str, ...]
    graphs: bool
    all_graphs: bool
    gpu: str | None
    gpu_memory: str | None
    decode_steps: int
    timeout: float
    record: Path | None
    replay: Path | None
    dry_run: bool
