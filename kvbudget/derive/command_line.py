"""An engine's command line, pasted as it is -> model, flags and environment."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.derive.flags import load_flags
from kvbudget.errors import InputError
from kvbudget.formula.registry import load_engine
from kvbudget.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.derive.flags import Flag, FlagValue

_HUMAN = re.compile(r"(-?\d+(?:\.\d+)?)([kKmMgGtT]?)\Z")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%\Z")
_SCALE = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4,
          "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}  # fmt: skip
_ASSIGN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass
class CommandLine:
    """A parsed engine command line."""

    model: str | None = None
    flags: dict[str, FlagValue] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def spellings(engine: str) -> dict[str, Flag]:
    """Every way to write a flag of `engine` on its command line."""
    return {option: flag for flag in load_flags(engine).values() for option in flag.cli}


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
    except (ValueError, InputError) as exc:
        kind = "size" if flag.kind == "size" else "number"
        percent = _PERCENT.match(text)
        hint = f"write {float(percent[1]) / 100:g}" if percent else flag.doc
        raise InputError(f"{option} takes a {kind}, not {text!r}", hint) from exc
    return text


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
