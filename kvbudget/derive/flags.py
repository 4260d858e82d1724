"""Engine flags: a pasted command line -> values; the engine's own default of every unset flag."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.formula.registry import load_engine
from kvbudget.formula.versions import holds
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FlagValue = int | float | str | bool | None

_HUMAN = re.compile(r"(-?\d+(?:\.\d+)?)([kKmMgGtT]?)\Z")
_SCALE = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4,
          "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}  # fmt: skip
_ASSIGN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


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


@dataclass
class CommandLine:
    """A parsed engine command line."""

    model: str | None = None
    flags: dict[str, FlagValue] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@lru_cache(maxsize=8)
def load_flags(engine: str) -> dict[str, Flag]:
    """The flags of an engine by name."""
    raw = load_shipped(load_engine(engine).root / "flags.yaml")
    return {
        row["name"]: Flag(
            row["name"], tuple(row["cli"]), row["type"], tuple(row.get("defaults") or ()),
            row.get("since"), row.get("removed"), " ".join(str(row.get("doc", "")).split()),
            row.get("fact", row["name"]), row.get("unmodelled"),
            row.get("unmodelled_when") or {}, row.get("least"),
            row.get("above"), row.get("most"), tuple(row.get("special") or ()),
            tuple(row.get("choices") or ()),
        )
        for row in raw["flags"]
    }  # fmt: skip


@lru_cache(maxsize=8)
def spellings(engine: str) -> dict[str, Flag]:
    """Every way to write a flag of `engine` on its command line."""
    return {option: flag for flag in load_flags(engine).values() for option in flag.cli}


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


def _lookup(engine: str, option: str) -> tuple[Flag | None, bool]:
    """(flag, negated). Underscores, unique prefixes and --no-FLAG are understood."""
    table = spellings(engine)
    if option in table:
        return table[option], False
    if not option.startswith("--"):
        return None, False
    plain = option.replace("_", "-")
    if plain in table:
        return table[plain], False
    if plain.startswith("--no-") and f"--{plain[5:]}" in table:
        return table[f"--{plain[5:]}"], True
    found = {flag.name: flag for text, flag in table.items() if text.startswith(plain)}
    if len(found) == 1 and len(plain) > 4:
        return next(iter(found.values())), False
    return None, False


def parse_value(flag: Flag, text: str) -> FlagValue:
    """Text of a flag -> its value. Raises InputError naming the flag."""
    option = flag.cli[0]
    try:
        if flag.kind == "float":
            return float(text)
        if flag.kind in ("int", "size"):
            if text == "auto":
                return -1
            match = _HUMAN.match(text)
            if match:
                return int(float(match[1]) * _SCALE[match[2]]) if match[2] else int(match[1])
            return parse_size(text)
        if flag.kind == "bool":
            return text.strip().lower() in ("1", "true", "yes", "on")
    except ValueError as exc:
        raise InputError(f"{option} takes a number, not {text!r}", flag.doc) from exc
    return text


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
    raise InputError(f"{flag.cli[0]} {value:g} is out of range", f"it takes {low}{high}")


def token_count(text: str) -> int:
    """`8192`, `32k` (thousand), `32K` (1024). Raises InputError."""
    match = _HUMAN.match(text.strip().replace(",", ""))
    if match is None or float(match[1]) < 1:
        raise InputError(f"not a number of tokens: {text!r}", "write 32768, 32k or 32K")
    return int(float(match[1]) * _SCALE[match[2]])


def parse_command(engine: str, tokens: Sequence[str]) -> CommandLine:
    """An engine's command line, the launcher words included or not.

    Flags this file does not know are kept in `unknown` (they move no memory that is modelled).
    Raises InputError for a missing value or one of the wrong type.
    """
    out = CommandLine()
    words = _after_launcher(engine, list(tokens), out)
    launched = len(words) + len(out.env) < len(tokens)
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("-") or word == "-":
            if out.model is None:
                out.model = word
            elif word != out.model and not launched:
                out.unknown.append(word)
            continue
        option, has_value, value = word.partition("=")
        flag, negated = _lookup(engine, option)
        if flag is None and not option.startswith("--"):
            flag, has_value, value = _glued(engine, word)
        if flag is None:
            position = _unknown(out, engine, word, words, position, bool(has_value))
            continue
        if flag.kind == "bool" and not has_value:
            out.flags[flag.name] = not negated
            continue
        if not has_value:
            if position >= len(words):
                raise InputError(f"{option} needs a value", flag.doc)
            value = words[position]
            position += 1
        out.flags[flag.name] = parse_value(flag, value)
    for name in ("model", "model_path"):
        if name in out.flags and out.model is None:
            out.model = str(out.flags[name])
    return out


def _glued(engine: str, word: str) -> tuple[Flag | None, str, str]:
    """`-tp4`, `-O3`: a short flag with its value attached."""
    for option, flag in sorted(spellings(engine).items(), key=lambda kv: -len(kv[0])):
        if not option.startswith("--") and word.startswith(option) and len(word) > len(option):
            return flag, "=", word[len(option) :].lstrip("=.")
    return None, "", ""


def _unknown(
    out: CommandLine, engine: str, word: str, words: list[str], position: int, has_value: bool
) -> int:
    """Skips a flag that is not on record, with its value when one seems to follow."""
    dotted = word.partition("=")[0].split(".", 1)[0]
    flag, _ = _lookup(engine, dotted)
    follows = position < len(words) and not words[position].startswith("-")
    value = word.partition("=")[2] if has_value else (words[position] if follows else "")
    if flag is not None and flag.kind == "json" and "." in word:
        out.flags[flag.name] = json.dumps({word.partition("=")[0].split(".", 1)[1]: value})
    else:
        out.unknown.append(word)
    return position + (1 if follows and not has_value else 0)


def _after_launcher(engine: str, tokens: list[str], out: CommandLine) -> list[str]:
    while tokens and _ASSIGN.match(tokens[0]):
        name, _, value = tokens.pop(0).partition("=")
        out.env[name] = value
    for launcher in load_engine(engine).raw.get("launch") or ():
        size = len(launcher)
        for start in range(len(tokens) - size + 1):
            if tokens[start : start + size] == launcher:
                before = tokens[:start]
                for token in before:
                    if _ASSIGN.match(token) and not token.startswith("-"):
                        out.env[token.partition("=")[0]] = token.partition("=")[2]
                kept = [t for t in before if not _ASSIGN.match(t) or t.startswith("-")]
                return kept + tokens[start + size :]
    return tokens
