"""What `--device` and `--model tiny` mean."""

from __future__ import annotations

import os
from pathlib import Path

from kvbudget.errors import InputError

BUNDLED = Path(__file__).with_name("models")
TRACKED = ("cpu", "fake")


def bundled_model(text: str) -> str:
    """`tiny` names the model shipped with kvbudget, unless there is a file of that name."""
    if text.isidentifier() and (BUNDLED / text).is_dir() and not Path(text).exists():
        return str(BUNDLED / text)
    return text


def pick_device(text: str) -> tuple[str, int]:
    """(`cuda`, N) or (`cpu` | `fake`, 0). `auto`: the first NVIDIA device, else the CPU.

    N counts the devices this process may use, MIG slices one by one. Raises InputError for
    anything else.
    """
    kind, _, number = text.partition(":")
    if kind == "auto":
        from kvbudget.gpu.nvml import open_nvml

        try:
            with open_nvml() as nvml:
                usable = nvml.visible(os.environ.get("CUDA_VISIBLE_DEVICES"))
                return ("cuda", 0) if usable else ("cpu", 0)
        except InputError:
            return "cpu", 0
    if kind not in ("cuda", *TRACKED) or (number and (kind != "cuda" or not number.isdigit())):
        raise InputError(f"unknown device {text!r}", "one of: auto, cuda, cuda:N, cpu, fake")
    return kind, int(number or 0)
