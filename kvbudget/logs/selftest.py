"""The self-test of log patterns: every sample, every reject, every promise a file makes."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kvbudget.errors import KnowledgeError
from kvbudget.facts import FACTS
from kvbudget.knowledge.patterns import Pattern, PatternSet, expand, parse_file
from kvbudget.knowledge.schema import Failure, Line, PatternFile, Yield
from kvbudget.knowledge.yamlfile import locate
from kvbudget.logs.figures import facts_of
from kvbudget.logs.match import Hit, Matcher, records
from kvbudget.logs.scan import RawLine
from kvbudget.units import BYTE_FACTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from kvbudget.facts import Fact

LONG_LINE = 100_000
"""Characters of the line on which each pattern is timed."""
TIME_LIMIT = 0.5
"""CPU seconds a pattern may take on a line of LONG_LINE characters."""
SHORT_LITERAL = 4
"""A literal shorter than this stands in too many lines to decide anything."""

_ADVICE = ("is too short to be rare", "which `expect` does not mention")

_CLAUSE = r"(?:[<>]=?|==|!=|~=) ?[\w.+*]+"
_FIGURE = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_SPECIFIER = re.compile(rf"\*|{_CLAUSE}(?:, ?{_CLAUSE})*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where (line and column count from 1)."""

    file: str
    line: int | None
    col: int | None
    message: str
    level: str = "error"
    """error, or warning: a thing to look at that does not make a file wrong"""

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.col) if part is not None)
        return f"{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check saw: how much was tested, and what failed."""

    files: int
    patterns: int
    samples: int
    rejects: int
    problems: tuple[Problem, ...]


def check_patterns(paths: Iterable[Path], *, timed: bool = True) -> Outcome:
    """Checks each file alone and the ids across all of them; never raises for a faulty file.

    `timed` runs every pattern on a LONG_LINE, which takes a few milliseconds each.
    """
    problems: list[Problem] = []
    parsed: list[tuple[Path, PatternFile]] = []
    for path in paths:
        try:
            parsed.append((path, parse_file(path)))
        except KnowledgeError as error:
            problems.append(_of_error(error, path))
    seen: dict[str, str] = {}
    counts = [0, 0, 0]
    for path, content in parsed:
        for kind, entries in _kinds(content):
            for index, entry in enumerate(entries):
                place = f"$.{kind}[{index}]"
                counts[0] += 1
                counts[1] += len(entry.samples)
                counts[2] += len(entry.rejects)
                found = list(entry_problems(Pattern(entry, content.engine, str(path)), timed=timed))
                if entry.id in seen:
                    found.append((".id", f"{entry.id}: this id stands already in {seen[entry.id]}"))
                seen.setdefault(entry.id, str(path))
                for key, message in found:
                    line, col = locate(path, f"at `{place}{key}`")
                    level = "warning" if message.endswith(_ADVICE) else "error"
                    problems.append(Problem(str(path), line, col, message, level))
    return Outcome(len(parsed), counts[0], counts[1], counts[2], tuple(problems))


def _kinds(content: PatternFile) -> list[tuple[str, Sequence[Line | Failure]]]:
    return [("lines", content.lines), ("failures", content.failures)]


def _of_error(error: KnowledgeError, path: Path) -> Problem:
    where = ":".join(str(part) for part in (error.file, error.line, error.col) if part is not None)
    return Problem(
        error.file or str(path), error.line, error.col, error.what.removeprefix(f"{where}: ")
    )


def entry_problems(pattern: Pattern, *, timed: bool) -> Iterator[tuple[str, str]]:
    """(key below the entry, what is wrong) for everything wrong with one entry."""
    entry = pattern.entry
    yield from _words(entry)
    try:
        regex = pattern.regex
    except KnowledgeError as error:
        yield ".pattern", error.what.removeprefix(f"{pattern.file}: ")
        return
    if _nested(expand(entry.pattern)):
        yield ".pattern", f"{entry.id}: a repeat inside a repeat can take exponential time"
        return
    yield from _yields(entry, set(regex.groupindex))
    if any(key == ".yields" for key, _ in _yields(entry, set(regex.groupindex))):
        return
    matcher = Matcher(PatternSet([pattern]))
    for index, sample in enumerate(entry.samples):
        for message in _sample(matcher, entry, sample.text, sample.expect):
            text = message.removeprefix(f"{pattern.file}: ").removeprefix(f"{entry.id}: ")
            yield f".samples[{index}]", f"{entry.id}: {text}"
    for index, text in enumerate(entry.rejects):
        if _hits(matcher, text):
            yield f".rejects[{index}]", f"{entry.id}: matches a line that it must not match"
    if timed:
        yield from _timed(pattern)


def _words(entry: Line | Failure) -> Iterator[tuple[str, str]]:
    if not entry.samples:
        yield ".id", f"{entry.id}: no sample"
    if not entry.rejects:
        yield ".id", f"{entry.id}: no line that it must not match (rejects)"
    if not entry.literals:
        yield ".id", f"{entry.id}: no literal decides which lines are looked at"
    if not _SPECIFIER.fullmatch(entry.versions):
        yield ".versions", f"{entry.id}: not a version range: {entry.versions!r}"
    for index, literal in enumerate(entry.literals):
        if len(literal) < SHORT_LITERAL:
            yield f".literals[{index}]", f"{entry.id}: {literal!r} is too short to be rare"
        if "\n" in literal:
            yield f".literals[{index}]", f"{entry.id}: a literal stands in one physical line"
    if isinstance(entry, Failure) and entry.decoy and not entry.why:
        yield ".decoy", f"{entry.id}: a decoy says in `why` what misleads"


def _yields(entry: Line | Failure, groups: set[str]) -> Iterator[tuple[str, str]]:
    for name, item in entry.yields.items():
        if name not in FACTS:
            yield ".yields", f"{entry.id}: {name} is no fact of kvbudget/facts.py"
        for part in item if isinstance(item, tuple) else (item,):
            for group in _groups(part):
                if group not in groups:
                    yield ".yields", f"{entry.id}: the pattern has no group {group!r}"
    version = getattr(entry, "engine_version", None)
    if version and version not in groups:
        yield ".engine_version", f"{entry.id}: the pattern has no group {version!r}"


def _groups(part: Yield) -> list[str]:
    return [part.group, *([part.unit_group] if part.unit_group else [])]


def _hits(matcher: Matcher, text: str) -> list[Hit]:
    """Hits of a whole text, read exactly as a log is read."""
    lines = text.rstrip("\n").split("\n")
    raw = (RawLine(number, line, hit=True) for number, line in enumerate(lines, 1))
    return [hit for record in records(raw) for hit in matcher.hits(record)]


def _sample(
    matcher: Matcher, entry: Line | Failure, text: str, expect: dict[str, Any]
) -> Iterator[str]:
    joined = text.replace("\n", "")
    if not any(literal in text or literal in joined for literal in entry.literals):
        yield "none of its literals stands in the sample"
        return
    hits = _hits(matcher, text)
    if not hits:
        reached = longest_prefix(entry.pattern, text)
        yield f"the sample does not match; as far as it does: {reached!r}"
        return
    try:
        facts = [fact for hit in hits for fact in facts_of(hit)]
    except KnowledgeError as error:
        yield error.what
        return
    yield from _compare(facts, expect)


def _compare(facts: list[Fact], expect: dict[str, Any]) -> Iterator[str]:
    for name, wanted in expect.items():
        got = [fact for fact in facts if fact.name == name]
        for want in map(str, wanted if isinstance(wanted, list) else [wanted]):
            if not any(stands_for(fact, want) for fact in got):
                yield f"{name} is {[_shown(f) for f in got] or 'not there'}, expected {want!r}"
    for name in {fact.name for fact in facts} - expect.keys():
        if not FACTS[name].informational:
            printed = [fact.printed for fact in facts if fact.name == name]
            yield f"the sample also gives {name} = {printed}, which `expect` does not mention"


def stands_for(fact: Fact, wanted: str) -> bool:
    """Whether a fact is what a sample expects.

    `12.5`: the figure as printed. `12.50 GiB`: what it means, half a last digit either
    way (a setting is exact).
    """
    figure, _, unit = wanted.rpartition(" ")
    factor = BYTE_FACTORS.get(unit) if fact.unit == "B" else int(unit == fact.unit)
    if not factor or not _FIGURE.fullmatch(figure):
        return fact.printed == wanted
    number = Decimal(figure.replace(",", ""))
    exponent = int(number.as_tuple().exponent)
    exact = unit == "B" or fact.source != "log" or (fact.unit != "B" and exponent >= 0)
    middle = number * factor
    half = 0 if exact else Decimal(1).scaleb(exponent) * factor / 2
    slack = 1 if fact.unit == "B" and not exact else 1e-9 * abs(float(middle))
    ends = ((fact.low, middle - half), (fact.value, middle), (fact.high, middle + half))
    return all(abs(float(end) - float(want)) <= slack for end, want in ends if end is not None)


def _shown(fact: Fact) -> str:
    return fact.printed if fact.low is None else f"{fact.printed} = {fact.low} to {fact.high}"


def longest_prefix(pattern: str, text: str) -> str:
    """The piece of `text` that the longest compilable beginning of `pattern` matches."""
    for end in range(len(pattern), 0, -1):
        try:
            found = re.search(expand(pattern[:end]), text)
        except re.error:
            continue
        if found and found.group():
            return found.group()
    return ""


def _timed(pattern: Pattern) -> Iterator[tuple[str, str]]:
    """Lines that grow eightfold, so that a slow pattern is caught while merely slow."""
    texts = {sample.text for sample in pattern.entry.samples[:1]} | set(pattern.entry.literals[:1])
    for text in sorted(texts):
        unit = text.replace("\n", " ")
        shapes: list[Callable[[int], str]] = [
            lambda n, u=unit: (u * (n // max(len(u), 1) + 1))[:n],  # type: ignore[misc]
            lambda n, u=unit: u + "1" * n,  # type: ignore[misc]
            lambda n, u=unit: u + " " * n,  # type: ignore[misc]
        ]
        for shape in shapes:
            for size in (LONG_LINE // 64, LONG_LINE // 8, LONG_LINE):
                start = time.thread_time()
                for _ in pattern.regex.finditer(shape(size)):
                    pass
                if time.thread_time() - start > TIME_LIMIT * size / LONG_LINE + 0.1:
                    yield ".pattern", f"{pattern.id}: too slow on a line of {size:,} characters"
                    return


def _nested(expression: str) -> bool:
    """True when an endless repeat holds another one and no fixed character keeps them apart.

    `(?:\\w+\\.)*` is harmless: the dot, which `\\w` cannot be, ends every round.
    """
    from re import _compiler, _parser  # type: ignore[attr-defined]

    def delimited(body: Any, inner: Any) -> bool:  # noqa: ANN401 - sre's own trees
        one = _compiler.compile(inner)
        fixed = [chr(argument) for op, argument in body if str(op) == "LITERAL"]
        return any(not one.match(char) for char in fixed)

    def walk(tree: Any, outer: Any) -> bool:  # noqa: ANN401 - sre's own tree
        for op, argument in tree:
            name = str(op)
            if name in ("MAX_REPEAT", "MIN_REPEAT"):
                endless = argument[1] == _parser.MAXREPEAT
                if endless and outer is not None and not delimited(outer, argument[2]):
                    return True
                if walk(argument[2], argument[2] if endless else outer):
                    return True
            elif name == "SUBPATTERN":
                body = argument[-1]
                if walk(body, body if outer is not None else None):
                    return True
            elif name == "BRANCH" and any(
                walk(branch, branch if outer is not None else None) for branch in argument[1]
            ):
                return True
        return False

    return walk(_parser.parse(expression), None)
