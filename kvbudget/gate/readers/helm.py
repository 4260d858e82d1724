"""Actions of a Helm template, evaluated as far as its values allow; the rest becomes a hole."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kvbudget.gate.readers.helm_functions import (
    MISSING,
    descend,
    logic,
    plain_function,
    show,
    truth,
)
from kvbudget.gate.source import HOLE, Text

ACTION = re.compile(
    r"\{\{-?\s*(/\*.*?\*/|(?:\"(?:[^\"\\]|\\.)*\"|`[^`]*`|[^\"`}]|\}(?!\}))*?)\s*-?\}\}|\{%-?.*?-?%\}",
    re.S,
)
_TOKEN = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|`([^`]*)`|(\()|(\))|(\|)|(:?=)|([^\s()|\"`]+)")
OPENS = ("if", "range", "with", "define", "block")
_OBJECT = re.compile(
    r"^\s*(kind|containers|image|apiVersion|spec)\s*:|vllm serve|launch_server|entrypoints", re.M
)
MAX_INCLUDE = 12
ROOT = "."
"""The chart as a value: what `.` is at the top and `$` everywhere."""


@dataclass
class Chart:
    """What the templates of a chart refer to."""

    values: Any = MISSING
    version: str | None = None
    defines: dict[str, Text] = field(default_factory=dict)
    """Named templates."""


class Span:
    """One action; `{{-` and `-}}` take the blanks and line breaks beside them along."""

    __slots__ = ("body", "end", "match", "start")

    def __init__(self, match: re.Match[str], text: str) -> None:
        self.match = match
        self.body = (match.group(1) or "").strip()
        self.start, self.end = match.span()
        whole = match.group()
        while whole.startswith("{{-") and self.start and text[self.start - 1].isspace():
            self.start -= 1
        while whole.endswith("-}}") and self.end < len(text) and text[self.end].isspace():
            self.end += 1


class Renderer:
    """Evaluates the actions of a template as far as its values allow."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.variables: dict[str, Any] = {}
        self.dots: list[Any] = []
        self.depth = 0

    def render(self, text: Text) -> Text:
        """The text with its actions resolved."""
        spans = [Span(match, text.s) for match in ACTION.finditer(text.s)]
        return self._span(text, spans, 0, len(spans), 0, len(text.s))

    def _span(
        self, text: Text, spans: list[Span], first: int, last: int, start: int, end: int
    ) -> Text:
        parts: list[Text] = []
        at = start
        index = first
        while index < last:
            span = spans[index]
            parts.append(text.cut(at, max(at, span.start)))
            body = span.body
            word = body.split(None, 1)[0] if body else ""
            line = text.lines[span.match.start()]
            at = span.end
            if word in OPENS:
                close, branches = self._block(spans, index, last)
                parts.append(self._branch(text, spans, word, body, index, close, branches))
                at = spans[close].end if close < last else end
                index = close + 1
                continue
            if span.match.group().startswith("{%"):
                index += 1
                continue
            value = self._action(body)
            if value and not (value == HOLE and _alone(text.s, span.match)):
                gap = " " if value == HOLE and span.start < span.match.start() else ""
                parts.append(Text.on(gap + value, line))
            index += 1
        parts.append(text.cut(at, max(at, end)))
        return Text.join(parts)

    def _block(self, spans: list[Span], index: int, last: int) -> tuple[int, list[int]]:
        depth = 1
        branches: list[int] = []
        for at in range(index + 1, last):
            word = spans[at].body.split(None, 1)[:1]
            word_text = word[0] if word else ""
            if word_text in OPENS:
                depth += 1
            elif word_text == "end":
                depth -= 1
                if depth == 0:
                    return at, branches
            elif word_text == "else" and depth == 1:
                branches.append(at)
        return last, branches

    def _branch(
        self,
        text: Text,
        spans: list[Span],
        word: str,
        body: str,
        index: int,
        close: int,
        branches: list[int],
    ) -> Text:
        if word == "define":
            return Text("", [])
        edges = [index, *branches, close]
        end_at = spans[close].start if close < len(spans) else len(text.s)
        for number in range(len(edges) - 1):
            head, tail = edges[number], edges[number + 1]
            start = spans[head].end
            stop = spans[tail].start if tail < len(spans) else end_at
            condition = body[len(word) :].strip()
            if number:
                said = spans[head].body.split(None, 1)
                condition = said[1].strip() if len(said) > 1 else ""
                if condition.startswith("if "):
                    condition = condition[3:]
                elif not condition:
                    return self._span(text, spans, head + 1, tail, start, stop)
            value = self._value(condition)
            known = value is not MISSING and value is not None and HOLE not in str(value)
            if word == "range" and number == 0:
                return self._range(text, spans, value, condition, head, tail, start, stop)
            if value is MISSING or (isinstance(value, str) and HOLE in value):
                if _OBJECT.search(text.s[start:stop]):
                    return self._with(
                        text, spans, head, tail, start, stop, MISSING if word == "with" else None
                    )
                return Text("", [])
            if (known and truth(value)) or (value is not None and truth(value)):
                dot = value if word == "with" else None
                return self._with(text, spans, head, tail, start, stop, dot)
        return Text("", [])

    def _with(
        self,
        text: Text,
        spans: list[Span],
        head: int,
        tail: int,
        start: int,
        stop: int,
        dot: Any,  # noqa: ANN401
    ) -> Text:
        if dot is None:
            return self._span(text, spans, head + 1, tail, start, stop)
        self.dots.append(dot)
        out = self._span(text, spans, head + 1, tail, start, stop)
        self.dots.pop()
        return out

    def _range(
        self,
        text: Text,
        spans: list[Span],
        value: Any,  # noqa: ANN401 - template value
        condition: str,
        head: int,
        tail: int,
        start: int,
        stop: int,
    ) -> Text:
        names = re.match(r"\$(\w+)\s*(?:,\s*\$(\w+))?\s*:=\s*(.*)", condition, re.S)
        if names:
            value = self._value(names.group(3))
        if value is MISSING or not isinstance(value, (list, dict)) or len(value) > 200:
            if value is MISSING and _OBJECT.search(text.s[start:stop]):
                return self._with(text, spans, head, tail, start, stop, MISSING)
            return Text("", [])
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        out: list[Text] = []
        for key, item in pairs:
            if names and names.group(2):
                self.variables[names.group(1)], self.variables[names.group(2)] = key, item
            elif names:
                self.variables[names.group(1)] = item
            out.append(
                self._with(text, spans, head, tail, start, stop, item if item is not None else "")
            )
        return Text.join(out)

    # ---- expressions ----
    def _action(self, body: str) -> str:
        if not body or body.startswith("/*") or body in ("end", "else"):
            return ""
        assigned = re.match(r"\$(\w+)\s*:?=\s*(.*)", body, re.S)
        if assigned:
            self.variables[assigned.group(1)] = self._value(assigned.group(2))
            return ""
        value = self._value(body)
        if value is MISSING or value is None:  # a key that values.yaml leaves to the user
            return HOLE
        return show(value)

    def _value(self, expr: str) -> Any:  # noqa: ANN401 - template value
        tokens = list(_TOKEN.finditer(expr))
        try:
            value, rest = self._pipeline(tokens, 0)
        except (IndexError, RecursionError):
            return MISSING
        return value if rest >= len(tokens) else MISSING

    def _pipeline(self, tokens: list[re.Match[str]], at: int) -> tuple[Any, int]:
        value, at = self._command(tokens, at, [])
        while at < len(tokens) and tokens[at].group(5):
            value, at = self._command(tokens, at + 1, [value])
        return value, at

    def _command(self, tokens: list[re.Match[str]], at: int, piped: list[Any]) -> tuple[Any, int]:
        terms: list[Any] = []
        name: str | None = None
        first = True
        while at < len(tokens) and not tokens[at].group(4) and not tokens[at].group(5):
            token = tokens[at]
            if token.group(1) is not None:
                terms.append(token.group(1).replace('\\"', '"'))
            elif token.group(2) is not None:
                terms.append(token.group(2))
            elif token.group(3):
                value, at = self._pipeline(tokens, at + 1)
                terms.append(value)
                if at >= len(tokens) or not tokens[at].group(4):
                    raise IndexError
            elif token.group(7):
                word = token.group(7)
                if (
                    first
                    and re.fullmatch(r"[A-Za-z]\w*", word)
                    and word not in ("true", "false", "nil")
                ):
                    name = word
                else:
                    terms.append(self._term(word))
            else:
                raise IndexError
            first = False
            at += 1
        if name is not None:
            return self._function(name, [*terms, *piped]), at
        return (terms[0] if terms else (piped[0] if piped else MISSING)), at

    def _term(self, word: str) -> Any:  # noqa: ANN401 - template value
        if word in ("true", "false"):
            return word == "true"
        if word == "nil":
            return None
        if re.fullmatch(r"-?\d+", word):
            return int(word)
        if re.fullmatch(r"-?\d*\.\d+", word):
            return float(word)
        if word == ".":
            return self.dots[-1] if self.dots else ROOT
        if word.startswith("$."):
            return self._path(None, word[2:])
        if word.startswith("$"):
            name, _, rest = word[1:].partition(".")
            if not name:
                return ROOT
            base = self.variables.get(name, MISSING)
            return self._within(base, rest) if rest else base
        if word.startswith("."):
            inner = self.dots[-1] if self.dots else None
            return self._path(inner, word[1:])
        return MISSING

    def _path(self, dot: Any, path: str) -> Any:  # noqa: ANN401 - template value
        parts = path.split(".")
        if parts[0] == "Values":
            return descend(self.chart.values, parts[1:])
        if parts[0] == "Chart" and parts[1:] == ["AppVersion"]:
            return self.chart.version or MISSING
        if parts[0] in ("Release", "Chart", "Capabilities", "Files", "Template"):
            return MISSING
        if dot is not None and dot is not MISSING:
            return self._within(dot, path)
        return MISSING

    def _within(self, base: Any, path: str) -> Any:  # noqa: ANN401 - template value
        """A path under a value, which may be the chart itself or a dict that holds it."""
        first, _, rest = path.partition(".")
        if base == ROOT:
            return self._path(None, path)
        if rest and isinstance(base, dict) and base.get(first) == ROOT:
            return self._path(None, rest)
        return descend(base, path.split("."))

    def _function(self, name: str, args: list[Any]) -> Any:  # noqa: ANN401 - template value
        if name == "default":
            if len(args) < 2:
                return args[0] if args else MISSING
            value = args[-1]
            if value is MISSING:
                return args[0]
            return value if truth(value) else args[0]
        if name == "coalesce":
            return next((a for a in args if a is not MISSING and truth(a)), MISSING)
        if name == "required":
            value = args[-1] if args else MISSING
            return MISSING if value is None or value == "" else value
        if name in ("and", "or", "not", "eq", "ne", "gt", "ge", "lt", "le", "empty", "hasKey"):
            return logic(name, args)
        if name in ("include", "template"):
            return self._include(args)
        if name == "dict" and len(args) % 2 == 0:
            return dict(zip(map(str, args[::2]), args[1::2], strict=True))
        if name in ("tpl",):
            value = args[0] if args else MISSING
            return self.render(Text.on(value, 0)).s if isinstance(value, str) else value
        if name in ("quote", "squote") and args and (args[-1] is None or args[-1] is MISSING):
            return f'"{HOLE}"'
        if any(arg is MISSING for arg in args):
            return MISSING
        return plain_function(name, args)

    def _include(self, args: list[Any]) -> Any:  # noqa: ANN401 - template value
        if not args or not isinstance(args[0], str) or self.depth >= MAX_INCLUDE:
            return MISSING
        body = self.chart.defines.get(args[0])
        if body is None:
            return MISSING
        self.depth += 1
        held = self.dots
        self.dots = [args[1]] if len(args) > 1 and isinstance(args[1], (dict, list)) else []
        out = self.render(body).s
        self.dots = held
        self.depth -= 1
        return (
            re.sub(r"\n[ \t]*(?=\n)", "", out).strip("\n").strip()
            if "\n" not in out.strip()
            else _squeeze(out)
        )


def _alone(text: str, match: re.Match[str]) -> bool:
    """True for an action that has a line of its own: unknown words there add nothing."""
    before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    end = text.find("\n", match.end())
    after = text[match.end() : end if end >= 0 else len(text)]
    return not before.strip() and not after.strip()


def _squeeze(text: str) -> str:
    rows = [row for row in text.split("\n") if row.strip()]
    return "\n".join(rows)
