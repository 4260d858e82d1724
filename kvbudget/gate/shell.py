"""A shell script -> the simple commands it would run, with what is known of its variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.gate.shell_lex import Lexer, Part, Token
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from collections.abc import Callable

Variables = dict[str, list[Text]]
"""Name -> words (a scalar has one); an unknown value is one HOLE."""

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_PS_ASSIGN = re.compile(r"\$?(?:env:)?([A-Za-z_]\w*)\Z")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OPENERS = {"if": 1, "for": 1, "while": 1, "until": 1, "case": 1, "select": 1}
_CLOSERS = {"fi", "done", "esac"}
_SKIP = {"then", "do", "else", "elif", "{", "}", "!", "time", "if", "while", "until", "in"}
MAX_NESTING = 8


@dataclass
class Command:
    """One simple command: its words, the environment it gets, where its output goes."""

    words: list[Text]
    env: dict[str, Text]
    heredocs: list[tuple[Text, bool]] = field(default_factory=list)
    writes: list[Text] = field(default_factory=list)
    piped_to: str = ""
    pipeline: int = 0
    printed: bool = False


@dataclass
class Scope:
    """Variables of a script."""

    variables: Variables = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    outside: dict[str, str] = field(default_factory=dict)
    export_all: bool = False

    def set(self, name: str, words: list[Text], exported: bool = False) -> None:
        """An unconditional assignment."""
        self.variables[name] = words
        if exported or self.export_all:
            self.exported.add(name)

    def env(self) -> dict[str, Text]:
        """Exported variables with a value."""
        out: dict[str, Text] = {}
        for name in self.exported:
            words = self.variables.get(name)
            if words is not None:
                out[name] = Text.join(words, " ")
        return out


class Script:
    """Interprets assignments and words; never runs anything."""

    def __init__(
        self,
        text: Text,
        scope: Scope | None = None,
        *,
        source: Callable[[str], Text | None] | None = None,
        powershell: bool = False,
    ) -> None:
        self.tokens = Lexer(text, "`" if powershell else "\\").tokens()
        self.scope = scope or Scope()
        self.source = source
        self.powershell = powershell
        self.depth = 0
        self.commands: list[Command] = []
        self.sourced = 0

    def run(self) -> list[Command]:
        """The simple commands in order."""
        index = 0
        conditional = False
        pipeline = 0
        while self.tokens[index].kind != "end":
            token = self.tokens[index]
            if token.kind == "op":
                if token.op in ("&&", "||"):
                    conditional = True
                elif token.op in ("|", "|&"):
                    if self.commands:
                        self.commands[-1].piped_to = self._peek_word(index + 1)
                else:
                    conditional = False
                if token.op not in ("|", "|&"):
                    pipeline += 1
                index += 1
                continue
            index = self._simple(index, conditional, pipeline)
        return self.commands

    def _peek_word(self, index: int) -> str:
        token = self.tokens[index] if index < len(self.tokens) else None
        while token is not None and token.kind == "op" and token.op == "\n":
            index += 1
            token = self.tokens[index]
        words: list[str] = []
        while token is not None and token.kind == "word" and len(words) < 12:
            words.append(token.literal())
            index += 1
            token = self.tokens[index]
        return " ".join(words)

    def _simple(self, index: int, conditional: bool, pipeline: int) -> int:
        words: list[Token] = []
        heredocs: list[tuple[Text, bool]] = []
        writes: list[Text] = []
        herestring = None
        in_array = False
        while True:
            token = self.tokens[index]
            if token.kind == "end":
                break
            if token.kind == "op":
                op = token.op
                opens = op == "(" and self.powershell and words and words[-1].literal() == "@"
                if opens or (in_array and op in ("\n", ";", ")")):
                    in_array = op != ")"
                    index += 1
                    continue
                if op == "&" and self.powershell and not words:
                    index += 1
                    continue
                if op in ("<<", "<<-"):
                    if token.body is not None:
                        heredocs.append((token.body, token.raw_body))
                    index += 1
                    continue
                if op in (">", ">>", "<", ">&", "<&", "&>", "&>>", ">|", "<>", "<<<"):
                    target = self.tokens[index + 1]
                    if target.kind == "word":
                        text = Text.join(self.expand(target.parts), " ")
                        if op in (">", ">>", ">|"):
                            writes.append(text)
                        if op == "<<<":
                            herestring = text
                        index += 2
                    else:
                        index += 1
                    continue
                break
            words.append(token)
            index += 1
        self._execute(words, conditional, pipeline, heredocs, writes, herestring)
        return index

    # ---- one command -------------------------------------------------------------------------
    def _execute(
        self,
        tokens: list[Token],
        conditional: bool,
        pipeline: int,
        heredocs: list[tuple[Text, bool]],
        writes: list[Text],
        herestring: Text | None,
    ) -> None:
        tokens = self._keywords(tokens)
        if not tokens:
            return
        counts = not conditional and self.depth == 0
        env: dict[str, Text] = {}
        if self.powershell and self._powershell_assignment(tokens, counts):
            return
        head = tokens[0].literal()
        if (
            head in ("export", "declare", "local", "readonly", "typeset", "set")
            and not tokens[0].items
        ):
            self._declaration(head, tokens[1:], counts)
            return
        start = 0
        while start < len(tokens):
            assigned = self._assignment(tokens[start])
            if assigned is None:
                break
            name, add, value = assigned
            if add and name in self.scope.variables:
                old = self.scope.variables[name]
                array = tokens[start].kind == "array"
                value = [*old, *value] if array else [Text.join([*old, *value])]
            env[name] = Text.join(value, " ")
            if not any(self._assignment(token) is None for token in tokens[start:]) and counts:
                self.scope.set(name, value)
            start += 1
        if start == len(tokens):
            return
        words: list[Text] = []
        for token in tokens[start:]:
            splat = self._splat(token)
            words.extend(self.expand(token.parts) if splat is None else splat)
            if token.kind == "array":
                words.append(Text.on(HOLE, token.line))
        if not words:
            return
        if words[0].s in ("source", ".") and len(words) > 1:
            self._source(words[1], counts)
            return
        if words[0].s == "unset" and counts:
            for word in words[1:]:
                self.scope.variables.pop(word.s, None)
            return
        if words[0].s == "read":
            for word in words[1:]:
                if _NAME.fullmatch(word.s):
                    self.scope.set(word.s, [Text.on(HOLE, word.line)])
        if herestring is not None:
            heredocs.append((herestring, True))
        expanded = [(body if raw else self.heredoc(body), raw) for body, raw in heredocs]
        self.commands.append(
            Command(words, {**self.scope.env(), **env}, expanded, writes, pipeline=pipeline)
        )

    def _keywords(self, tokens: list[Token]) -> list[Token]:
        while tokens:
            word = (
                tokens[0].literal()
                if not any(p.quoted or p.expansion for p in tokens[0].parts)
                else ""
            )
            if word in _OPENERS:
                self.depth += 1
                if word in ("for", "select"):
                    if len(tokens) > 1:
                        name = tokens[1].literal()
                        self.scope.variables[name] = [Text.on(HOLE, tokens[1].line)]
                    return []
                if word == "case":
                    return []
                tokens = tokens[1:]
            elif word in _CLOSERS:
                self.depth = max(0, self.depth - 1)
                tokens = tokens[1:]
            elif word == "function":
                return []
            elif word in _SKIP:
                tokens = tokens[1:]
            elif word in ("[[", "[", "test"):
                return []
            else:
                return tokens
        return []

    def _assignment(self, token: Token) -> tuple[str, bool, list[Text]] | None:
        if not token.parts or token.parts[0].quoted or token.parts[0].expansion:
            return None
        match = _ASSIGN.match(token.parts[0].text.s)
        if not match:
            return None
        name, add = match.group(1), bool(match.group(2))
        if token.kind == "array":
            value: list[Text] = []
            for item in token.items:
                value.extend(self.expand(item))
            return name, add, value
        first = token.parts[0].text.cut(match.end())
        parts = [Part(first, False), *token.parts[1:]]
        return name, add, [self.joined(parts) or Text("", [])]

    def _declaration(self, head: str, tokens: list[Token], counts: bool) -> None:
        if head == "set":
            flags = [token.literal() for token in tokens]
            if "-a" in flags or ("allexport" in flags and "-o" in flags):
                self.scope.export_all = True
            elif "+a" in flags:
                self.scope.export_all = False
            return
        exports = head == "export"
        for token in tokens:
            assigned = self._assignment(token)
            if assigned is None:
                word = token.literal()
                if word.startswith("-"):
                    exports = exports or "x" in word
                elif exports and _NAME.fullmatch(word):
                    self.scope.exported.add(word)
                continue
            name, add, value = assigned
            if not counts:
                continue
            if add and name in self.scope.variables:
                value = [Text.join([*self.scope.variables[name], *value])]
            self.scope.set(name, value, exports)

    def _powershell_assignment(self, tokens: list[Token], counts: bool) -> bool:
        first = tokens[0]
        if len(first.parts) != 1 or not first.parts[0].expansion:
            return False
        match = _PS_ASSIGN.match(first.parts[0].text.s)
        if not match or len(tokens) < 2 or tokens[1].literal() != "=":
            return False
        value: list[Text] = []
        for token in tokens[2:]:
            if token.literal() in ("@", ","):
                continue
            value += [
                word.cut(0, -1) if word.s.endswith(",") else word
                for word in self.expand(token.parts)
            ]
        if counts:
            env = first.parts[0].text.s.lower().startswith("env:")
            self.scope.set(match.group(1), value or [Text("", [])], env)
        return True

    def _splat(self, token: Token) -> list[Text] | None:
        """PowerShell's `@name`: the words of an array."""
        match = re.fullmatch(r"@([A-Za-z_]\w*)", token.literal()) if self.powershell else None
        if match is None:
            return None
        words = self.scope.variables.get(match.group(1), [Text.on(HOLE, token.line)])
        return [Text.on(word.s, token.line) for word in words]

    def _source(self, path: Text, counts: bool) -> None:
        if self.source is None or not counts or not path.known or self.sourced >= MAX_NESTING:
            return
        text = self.source(path.s)
        if text is None:
            return
        self.sourced += 1
        inner = Script(text, self.scope, source=self.source)
        inner.sourced = self.sourced
        inner.run()

    # ---- words -------------------------------------------------------------------------------
    def joined(self, parts: list[Part]) -> Text:
        """One word without splitting (right side of an assignment)."""
        return Text.join([self._value(part) for part in parts])

    def expand(self, parts: list[Part]) -> list[Text]:
        """A word after expansion: none, one or more words."""
        out: list[Text] = []
        current: list[Text] = []
        started = False
        for part in parts:
            if not part.expansion:
                current.append(part.text)
                started = started or part.quoted or bool(part.text.s)
                continue
            many = self._array_words(part)
            if many is not None:
                if current and many:
                    current.append(many[0])
                    many = many[1:]
                    out.append(Text.join(current))
                    current, started = [], False
                out.extend(many)
                continue
            value = self._value(part)
            if part.quoted:
                current.append(value)
                started = True
                continue
            pieces = _split(value)
            if not pieces:
                continue
            if value.s[:1].isspace() and current:
                out.append(Text.join(current))
                current = []
            current.append(pieces[0])
            started = True
            for piece in pieces[1:]:
                out.append(Text.join(current))
                current = [piece]
        if started or (current and any(item.s for item in current)):
            out.append(Text.join(current))
        return out

    def _array_words(self, part: Part) -> list[Text] | None:
        expr = part.text.s
        line = part.text.line
        if expr in ("@", "*"):
            return [Text.on(HOLE, line)]
        match = re.fullmatch(r"([A-Za-z_]\w*)\[[@*]\](?:([:+-]+)(.*))?", expr, re.S)
        if match:
            words = self.scope.variables.get(match.group(1))
            if words is None:
                return [] if match.group(2) else [Text.on(HOLE, line)]
            return [Text.on(word.s, line) for word in words]
        if self.powershell and not part.quoted:
            words = self.scope.variables.get(expr)
            return [Text.on(word.s, line) for word in words] if words else None
        return None

    def _value(self, part: Part) -> Text:
        if not part.expansion:
            return part.text
        line = part.text.line
        return Text.on(self.lookup(part.text.s, line), line)

    def lookup(self, expr: str, line: int, depth: int = 0) -> str:
        """What `${expr}` gives; HOLE if that is not known."""
        if expr[:1] in ("(", "#", "!") or not expr:
            return HOLE
        if expr.lower().startswith("env:"):
            expr = expr[4:]
        match = re.match(r"([A-Za-z_]\w*|\d+|[@*#?!$-])", expr)
        if not match:
            return HOLE
        name, rest = match.group(1), expr[match.end() :]
        words = self.scope.variables.get(name)
        value = Text.join(words, " ").s if words is not None else None
        if value is None and name in self.scope.outside:
            value = self.scope.outside[name]
        if not rest:
            return HOLE if value is None else value
        if rest[0] == "[":
            inner = re.match(r"\[(\d+)\]", rest)
            if inner and words is not None and int(inner.group(1)) < len(words):
                return words[int(inner.group(1))].s
            return HOLE
        colon = rest.startswith(":")
        op = rest[1:2] if colon else rest[:1]
        word = rest[2:] if colon else rest[1:]
        if op not in ("-", "=", "?", "+") or depth > MAX_NESTING:
            return HOLE
        unset = value is None or (colon and value == "")
        if op == "?":
            return HOLE if unset else str(value)
        if op == "+":
            return "" if unset else self._nested(word, line, depth)
        if not unset:
            return str(value)
        result = self._nested(word, line, depth)
        if op == "=" and self.depth == 0:
            self.scope.set(name, [Text.on(result, line)])
        return result

    def _nested(self, word: str, line: int, depth: int) -> str:
        tokens = Lexer(Text.on('"' + word.replace('"', "") + '"', line)).tokens()
        return "".join(
            self.lookup(part.text.s, line, depth + 1) if part.expansion else part.text.s
            for part in tokens[0].parts
        )

    def heredoc(self, body: Text) -> Text:
        """An unquoted here-document: `$X`, `\\\\` and `\\$` as the shell reads them."""
        lexer = Lexer(body)
        parts: list[Text] = []
        at, s = 0, body.s
        while at < len(s):
            char = s[at]
            if char == "\\" and s[at + 1 : at + 2] in ("\\", "$", "`"):
                parts.append(body.cut(at + 1, at + 2))
                at += 2
            elif char == "\\" and s[at + 1 : at + 2] == "\n":
                at += 2
            elif char == "$":
                lexer.at = at
                token = Token("word", lexer.line())
                if lexer._dollar(token, True):
                    parts.append(self._value(token.parts[0]))
                    at = lexer.at
                else:
                    parts.append(body.cut(at, at + 1))
                    at += 1
            else:
                end = at + 1
                while end < len(s) and s[end] not in "\\$":
                    end += 1
                parts.append(body.cut(at, end))
                at = end
        return Text.join(parts)


def _split(value: Text) -> list[Text]:
    return [value.cut(m.start(), m.end()) for m in re.finditer(r"\S+", value.s)]
