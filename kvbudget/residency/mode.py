"""Whether a run is small enough that importing the compiler would cost more than it saves."""

from __future__ import annotations

from pathlib import Path

SMALL_BYTES = 4 << 20
"""Plain files up to this size are replayed once in plain Python in less time than numba imports."""

_state = {"small": False}


def expect(path: str) -> None:
    """Say before the kernels are imported which trace is coming; a later call changes nothing."""
    try:
        about = Path(path)
        _state["small"] = path != "-" and about.is_file() and about.stat().st_size <= SMALL_BYTES
    except (OSError, ValueError):
        _state["small"] = False


def small() -> bool:
    """True when plain Python is the faster choice."""
    return _state["small"]
