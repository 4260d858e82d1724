"""How far a draft goes: its steps, the branches of its tree, the tokens verified at once."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kvbudget.formula.interval import Interval
from kvbudget.formula.language import parse
from kvbudget.formula.versions import holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kvbudget.derive.gathered import Gathered

LENGTHS: Final = {"steps": "draft_steps", "branches": "draft_branches", "tokens": "draft_length"}
"""The three lengths and the fact each of them is."""

Count = int | str | list[int | str]
"""A number, an expression over facts and lengths, or several: the first whose names are known."""


def draft_lengths(
    facts: Gathered, rule: Mapping[str, Any], said: Mapping[str, Any], release: tuple[str, str],
    config: Mapping[str, Any],
) -> tuple[dict[str, int], dict[str, int]]:  # fmt: skip
    """The lengths, and the other facts that follow from them (index.yaml: speculation).

    said: what the flags say. release: the engine's version and the model's architecture. config:
    of the checkpoint that drafts. A length nothing says is left out.
    """
    known = {key: said[key] for key in LENGTHS if _is_count(said.get(key))}
    sizes = list(_block(rule, config))
    stated = bool(known)
    row = next(_fitting(rule.get("lengths"), said, release), {})
    if row.get("each") or not stated:
        for key in [key for key in row if key in LENGTHS and key not in known]:
            _put(known, key, row[key], facts, sizes)
    for row in _fitting(rule.get("settled"), said, release):
        for key in [key for key in row if key in LENGTHS]:
            _put(known, key, row[key], facts, sizes)
    lengths = dict(known)
    for row in islice(_fitting(rule.get("follows"), said, release), 1):
        _put(known, row["fact"], row["count"], facts, sizes)
    return lengths, {name: known[name] for name in known.keys() - lengths.keys()}


def is_one_of(algorithm: str, words: Iterable[str]) -> bool:
    """Whether an algorithm is among these words; engines take small letters too."""
    return algorithm.casefold() in {word.casefold() for word in words}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _fitting(
    rows: Sequence[Mapping[str, Any]] | None, said: Mapping[str, Any], release: tuple[str, str]
) -> Iterator[Mapping[str, Any]]:
    """Rows for this release, algorithm and architecture, in order."""
    version, architecture = release
    algorithm = str(said.get("algorithm") or "")
    for row in rows or ():
        if (
            holds(version, row.get("versions", "*"))
            and is_one_of(algorithm, row.get("algorithms", [algorithm]))
            and architecture in row.get("architectures", [architecture])
        ):
            yield row


def _block(rule: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[int]:
    """Tokens the drafting checkpoint was made to draft at once."""
    for path in rule.get("block") or ():
        found: Any = config
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if _is_count(found):
            yield found


def _put(
    known: dict[str, int], key: str, count: Count, facts: Gathered, sizes: Sequence[int]
) -> None:
    """Put the first count whose names are known; a length that has no value yet reads as 0."""
    for text in count if isinstance(count, list) else [count]:
        formula = parse(str(text))
        values = {name: facts.value(name) for name in formula.names}
        values |= {"block": sizes[0] if sizes else None, key: 0, **known}
        if any(values.get(name) is None for name in formula.names):
            continue
        env = {name: Interval.exact(values[name] or 0) for name in formula.names}
        number = int(formula.value(env).best)
        if number > 0:
            known[key] = number
        return
