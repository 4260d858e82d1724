"""This machine's memory as a capacity: what the kernel or the container allows, in bytes."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def _meminfo(key: str) -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup(name: str) -> int | None:
    try:
        text = Path(f"/sys/fs/cgroup/{name}").read_text(encoding="ascii").strip()
        return int(text)
    except (OSError, ValueError):
        return None


def host_memory() -> tuple[int, int | None]:
    """(total, available) of this machine or container; available None where nothing says so."""
    physical = _meminfo("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = _meminfo("MemAvailable")
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    if limit is not None and limit < physical:
        inside = limit - (used or 0)
        return limit, inside if available is None else min(available, inside)
    return physical, available


def is_wsl() -> bool:
    """True under Windows' Linux, where the driver may spill into system memory silently."""
    return "microsoft" in platform.release().lower()
