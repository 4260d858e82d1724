"""Engine flags: a pasted command line -> values; the engine's own default of every unset flag."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.formula.registry import load_engine
from kvbudget.formula.versions import holds
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FlagValue = int | float | str | bool | None


@dataclass(frozen=True)
class Flag:
    """One row of flags.yaml. `fact`: the fact its value is, where the name differs.

    unmodelled: what a user who sets the flag should know is not in the figures, where
    unmodelled_when (as of a default; `value`: the words that matter) holds. least, above,
    most: bounds of a number; special: values outside them that mean something. choices: the words
    each release takes.
    """

    name: str
    cli: tuple[str, ...]
    kind: str
    defaults: tuple[Mapping[str, Any], ...]
    since: str | None
    removed: str | None
    doc: str
    fact: str
    unmodelled: str | None = None
    unmodelled_when: Mapping[str, Any] = field(default_factory=dict)
    least: float | None = None
    above: float | None = None
    most: float | None = None
    special: tuple[int, ...] = ()
    choices: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Machine:
    """What defaults depend on."""

    total_memory: int | None = None
    device: str = ""
    entrypoint: str = "server"
    texts: Mapping[str, str] = field(default_factory=dict)


def load_flags(engine: str) -> dict[str, Flag]:
    """The flags of an engine by name."""
    return _flags(load_engine(engine).files("flags.yaml"))


@lru_cache(maxsize=16)
def _flags(files: tuple[Path, ...]) -> dict[str, Flag]:
    rows = [row for file in files for row in load_shipped(file)["flags"]]
    return {
        row["name"]: Flag(
            row["name"], tuple(row["cli"]), row["type"], tuple(row.get("defaults") or ()),
            row.get("since"), row.get("removed"), " ".join(str(row.get("doc", "")).split()),
            row.get("fact", row["name"]), row.get("unmodelled"),
            row.get("unmodelled_when") or {}, row.get("least"),
            row.get("above"), row.get("most"), tuple(row.get("special") or ()),
            tuple(row.get("choices") or ()),
        )
        for row in rows
    }  # fmt: skip


def in_release(flag: Flag, version: str) -> bool:
    """True where the release has the flag, as far as the bounds on record say."""
    span = [f">={flag.since}"] if flag.since else []
    span += [f"<{flag.removed}"] if flag.removed else []
    return holds(version, ",".join(span))


def default_of(flag: Flag, version: str, machine: Machine) -> FlagValue:
    """The engine's value of an unset flag; None where it has none or it depends on the unknown."""
    for row in flag.defaults:
        if holds(version, str(row["versions"])) and _fits(row.get("when") or {}, machine):
            value: FlagValue = row["value"]
            return value
    return None


def caution(flag: Flag, value: FlagValue, version: str, machine: Machine) -> str | None:
    """What the figures leave out when the user sets the flag to this value."""
    texts = {**machine.texts, "value": str(value)}
    if not value or flag.unmodelled is None or value == default_of(flag, version, machine):
        return None
    if not _fits(flag.unmodelled_when, replace(machine, texts=texts)):
        return None
    return f"{flag.cli[0]}: {flag.unmodelled} (not in these figures)"


def refused_word(flag: Flag, value: FlagValue, version: str) -> str | None:
    """The words the release takes, where the value is none of them."""
    for row in flag.choices:
        if holds(version, row["versions"]):
            words = row["value"]
            return (
                None if value in words else f"{flag.cli[0]} takes {', '.join(words)} in {version}"
            )
    return None


def _fits(when: Mapping[str, Any], machine: Machine) -> bool:
    device = machine.device.lower()
    for key, wanted in when.items():
        if key == "entrypoint":
            fits = machine.entrypoint == wanted
        elif key == "total_at_least":
            fits = machine.total_memory is not None and machine.total_memory >= parse_size(wanted)
        elif key == "device_lacks":
            fits = not any(word in device for word in wanted)
        elif key == "device_has":
            fits = any(word in device for word in wanted)
        else:
            fits = machine.texts.get(key) in (wanted if isinstance(wanted, list) else [wanted])
        if not fits:
            return False
    return True


MOST = 2**53
"""No count an engine takes is larger, and every float below holds whole numbers."""


def check_value(flag: Flag, value: FlagValue) -> None:
    """Raises InputError for a number no engine starts with: NaN, zero ranks, a share above one."""
    if isinstance(value, bool | str) or value is None or value in flag.special:
        return
    low_enough = value <= (MOST if flag.most is None else flag.most)
    least = -1 if flag.least is None and flag.above is None else flag.least
    high_enough = least is None or value >= least
    if flag.above is not None:
        high_enough = value > flag.above
    if low_enough and high_enough:
        return
    low = f"above {flag.above:g}" if flag.above is not None else f"at least {least:g}"
    high = f" and at most {flag.most:g}" if flag.most is not None else ""
    percent = f": {value / 100:g} for {value:g} %" if flag.most == 1 < value <= 100 else ""
    raise InputError(f"{flag.cli[0]} {value:g} is out of range", f"it takes {low}{high}{percent}")
