"""Jinja: `{{ expressions }}` and `{% if %}` with the variables that are known; the rest is a hole."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from kvbudget.gate.engines import says_engine
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

_USE = re.compile(r"(?<!\$)\{\{-?\s*(.*?)\s*-?\}\}", re.S)
_TAG = re.compile(r"\{%[-+]?\s*(\w+)\s*(.*?)\s*[-+]?%\}|\{#.*?#\}", re.S)
_DEFAULT = re.compile(
    r"([A-Za-z_]\w*)\s*\|\s*default\(\s*(?:'([^']*)'|\"([^\"]*)\"|([\w.]+))\s*(?:,\s*\w+\s*)?\)"
    r"(?:\s*\|\s*(?:string|int|float|quote|trim))*"
)
_PLAIN = re.compile(r"([A-Za-z_]\w*)(?:\s*\|\s*(?:string|int|float|quote|trim|lower|upper|bool))*")
_LITERAL = re.compile(r"'([^']*)'|\"([^\"]*)\"|([\d.]+)|(true|false)", re.I)
_TEST = re.compile(
    r"(not\s+)?([A-Za-z_]\w*)(?:\s*\|\s*bool)?(?:\s+is\s+(not\s+)?defined|\s*(==|!=)\s*(.+))?"
)
_FALSE = ("", "false", "no", "off", "0", "none")
MAX_NESTED = 6


def filled(text: Text, variables: Mapping[str, str]) -> Text:
    """The text as the template makes it: unknown expressions are holes, unknown branches are left
    out unless they hold the engine itself."""
    if "{{" not in text.s and "{%" not in text.s:
        return text
    known = dict(variables)
    if "{%" in text.s or "{#" in text.s:
        text = _branches(text, known)
    return text.sub(_USE, lambda match: expression(match.group(1), known))


def expression(expr: str, variables: Mapping[str, str], depth: int = 0) -> str:
    """One `{{ expression }}`."""
    default = _DEFAULT.fullmatch(expr)
    if default and default.group(1) not in variables:
        return next(group for group in default.groups()[1:] if group is not None)
    plain = default or _PLAIN.fullmatch(expr)
    if plain and plain.group(1) in variables:
        if depth > MAX_NESTED:
            return HOLE
        return _USE.sub(
            lambda m: expression(m.group(1), variables, depth + 1), variables[plain.group(1)]
        )
    literal = _LITERAL.fullmatch(expr)
    if literal:
        return next(group for group in literal.groups() if group is not None)
    return HOLE


def _holds(condition: str, variables: Mapping[str, str]) -> bool | None:
    """Whether a condition is met; None where that is not known."""
    match = _TEST.fullmatch(condition.strip())
    if match is None:
        return None
    negated, name, undefined, compare, other = match.groups()
    if " defined" in condition:
        return bool(undefined) == bool(negated) if name in variables else None
    if name not in variables:
        return None
    value = expression(name, variables)
    if HOLE in value:
        return None
    met = value.lower() not in _FALSE
    if compare:
        met = (value == expression(other, variables)) == (compare == "==")
    return met != bool(negated)


def _branches(text: Text, known: dict[str, str]) -> Text:
    tags = list(_TAG.finditer(text.s))
    return _span(text, tags, 0, len(tags), 0, len(text.s), known)


def _span(
    text: Text, tags: list[re.Match[str]], first: int, last: int, start: int, end: int,
    known: dict[str, str],
) -> Text:  # fmt: skip
    parts: list[Text] = []
    at, index = start, first
    while index < last:
        tag = tags[index]
        parts.append(text.cut(at, tag.start()))
        at = tag.end()
        word = tag.group(1)
        if word == "set" and (said := re.fullmatch(r"(\w+)\s*=\s*(.*)", tag.group(2), re.S)):
            known[said.group(1)] = expression(said.group(2), known)
        if word in ("if", "for"):
            edges = _edges(tags, index, last)
            parts.append(_chosen(text, tags, edges, known))
            close = edges[-1]
            at = tags[close].end() if close < last else end
            index = close
        index += 1
    parts.append(text.cut(at, end))
    return Text.join(parts)


def _edges(tags: list[re.Match[str]], index: int, last: int) -> list[int]:
    """Tags that open the branches of a block, and the one that closes it."""
    depth, out = 0, [index]
    for at in range(index + 1, last):
        word = tags[at].group(1)
        if word in ("if", "for"):
            depth += 1
        elif word in ("endif", "endfor"):
            if depth == 0:
                return [*out, at]
            depth -= 1
        elif word in ("else", "elif") and depth == 0:
            out.append(at)
    return [*out, last]


def _chosen(text: Text, tags: list[re.Match[str]], edges: list[int], known: dict[str, str]) -> Text:
    for opens, closes in pairwise(edges):
        word, condition = tags[opens].group(1), tags[opens].group(2)
        stop = tags[closes].start() if closes < len(tags) else len(text.s)
        body = text.cut(tags[opens].end(), stop)
        met = True if word == "else" else None if word == "for" else _holds(condition, known)
        if met or (met is None and says_engine(body.s)):
            return _span(text, tags, opens + 1, closes, tags[opens].end(), stop, known)
        if met is None:
            break
    return Text("", [])
