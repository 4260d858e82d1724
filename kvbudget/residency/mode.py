"""Whether a run is small enough that importing the compiler would cost more than it saves."""

from __future__ import annotations

from pathlib import Path

SMALL_BYTES = 4 << 20
"""Plain files up to this size are replayed once in plain Python in less time than numba imports."""

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""What compressed files begin with."""

_state = {"small": False}


def expect(path: str | None) -> None:
    """Say before the kernels are imported which trace is coming, None for none at all; a later
    call changes nothing.
    """
    _state["small"] = path is None or (path != "-" and _small(Path(path)))


def _small(path: Path) -> bool:
    try:
        if not path.exists():
            return True  # soon told; nothing to compile for
        if not path.is_file() or path.stat().st_size > SMALL_BYTES:
            return False
        with path.open("rb") as stream:
            return not stream.read(4).startswith((GZIP, ZSTD))
    except (OSError, ValueError):
        return False


def small() -> bool:
    """True when plain Python is the faster choice."""
    return _state["small"]
