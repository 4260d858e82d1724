"""A pattern is tried only on lines that hold one of its literals: no alternative may lack one."""

from __future__ import annotations

import itertools
import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from typing import Any

import pytest

from kvbudget.knowledge.patterns import expand, load_patterns

LIMIT = 80
"""Examples kept per part of a pattern."""
CLASSES = {
    codes.CATEGORY_DIGIT: "7", codes.CATEGORY_WORD: "w", codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_SPACE: "x", codes.CATEGORY_NOT_WORD: ":", codes.CATEGORY_NOT_DIGIT: "x",
}  # fmt: skip
Example = tuple[str, frozenset[tuple[int, int]]]
"""A text, and the (branch, alternative) pairs that were chosen to make it."""
NOTHING: list[Example] = [("", frozenset())]


def texts(tree: Any) -> list[Example]:
    """Short texts of a parsed pattern that together take every alternative in it."""
    found = NOTHING
    for code, value in tree:
        parts = _part(code, value)
        found = [(a + b, p | q) for (a, p), (b, q) in itertools.product(found, parts)]
        if len(found) > LIMIT:
            found = found[:: len(found) // LIMIT + 1] + _one_of_each(found)
    return found


def _one_of_each(examples: list[Example]) -> list[Example]:
    first: dict[tuple[int, int], Example] = {}
    for example in examples:
        for choice in example[1]:
            first.setdefault(choice, example)
    return list(first.values())


def _part(code: Any, value: Any) -> list[Example]:
    if code is codes.LITERAL:
        return [(chr(value), frozenset())]
    if code is codes.BRANCH:
        return [
            (text, chosen | {(id(value), index)})
            for index, way in enumerate(value[1])
            for text, chosen in texts(way)
        ]
    if code is codes.SUBPATTERN:
        return texts(value[-1])
    if code is codes.ATOMIC_GROUP:
        return texts(value)
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        least, _, inner = value
        once = texts(inner)
        return [(text * least, chosen) for text, chosen in once] if least else [*NOTHING, *once]
    if code is codes.IN:
        return _members(value)
    return [("~", frozenset())] if code in (codes.ANY, codes.NOT_LITERAL) else NOTHING


def _members(value: Any) -> list[Example]:
    if value[0][0] is codes.NEGATE:
        return [("~", frozenset())]
    letters = [
        chr(v) if c is codes.LITERAL else chr(v[0]) if c is codes.RANGE else CLASSES[v]
        for c, v in value
    ]
    return [(letter, frozenset()) for letter in letters[:3]]


def uncovered(pattern: str, literals: tuple[str, ...]) -> set[str]:
    """For each alternative that no example with a literal takes, one text of it."""
    matcher = re.compile(pattern)
    made = [e for e in texts(parser.parse(pattern)) if matcher.search(e[0])]
    reached = {c for text, chosen in made if any(w in text for w in literals) for c in chosen}
    if not any(any(w in text for w in literals) for text, _ in made):
        return set()  # the literal stands elsewhere in the line: the samples prove it
    return {text for text, chosen in made if chosen - reached}


@pytest.mark.parametrize("entry", [p.entry for p in load_patterns().patterns], ids=lambda e: e.id)
def test_every_alternative_holds_a_literal(entry: Any) -> None:
    assert not uncovered(expand(entry.pattern), tuple(entry.literals))


def test_an_alternative_without_literal_is_noticed() -> None:
    assert uncovered("red (?:apple|pear)|plum", ("apple",)) == {"red pear", "plum"}
