"""A shell script -> the simple commands it would run, with what is known of its variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.gate.shell_lex import Lexer, Part, Token
from kvbudget.gate.shell_words import MAX_NESTING, Scope, Words
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from collections.abc import Callable

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_PS_ASSIGN = re.compile(r"\$?(?:env:)?([A-Za-z_]\w*)\Z")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FOLDER = re.compile(r"dirname.*(?:\$0|BASH_SOURCE)|\A(?:0|BASH_SOURCE(?:\[0\])?)%/\*", re.S)
_ABOVE = re.compile(r"/\.\.(?![\w.])")
_OPENERS = {"if": 1, "for": 1, "while": 1, "until": 1, "case": 1, "select": 1}
_CLOSERS = {"fi", "done", "esac"}
_SKIP = {"then", "do", "else", "elif", "{", "}", "!", "time", "if", "while", "until", "in"}


@dataclass
class Command:
    """One simple command: its words, the environment it gets, where its output goes."""

    words: list[Text]
    env: dict[str, Text]
    heredocs: list[tuple[Text, bool]] = field(default_factory=list)
    writes: list[Text] = field(default_factory=list)
    piped_to: str = ""


def _exported_file(token: Token) -> Text | None:
    """The file behind `export $(grep -v '^#' FILE.env | xargs)`."""
    if len(token.parts) != 1 or "xargs" not in token.parts[0].text.s:
        return None
    text = token.parts[0].text
    match = re.search(r"[\w./-]*\.env[\w.-]*", text.s)
    return text.cut(match.start(), match.end()) if match else None


class Script(Words):
    """Interprets assignments and words; never runs anything."""

    def __init__(
        self,
        text: Text,
        scope: Scope | None = None,
        *,
        source: Callable[[str], Text | None] | None = None,
        powershell: bool = False,
    ) -> None:
        super().__init__(scope, powershell=powershell)
        self.tokens = Lexer(text, "`" if powershell else "\\").tokens()
        self.source = source
        self.commands: list[Command] = []
        self.sourced = 0
        self.folders: dict[str, Text] = {}
        """Variables that hold the folder of the script, as the way there from it."""

    def run(self) -> list[Command]:
        """The simple commands in order."""
        index = 0
        conditional = False
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
                index += 1
                continue
            index = self._simple(index, conditional)
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

    def _simple(self, index: int, conditional: bool) -> int:
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
        self._execute(words, conditional, heredocs, writes, herestring)
        return index

    # ---- one command -------------------------------------------------------------------------
    def _execute(
        self,
        tokens: list[Token],
        conditional: bool,
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
            self._remember_folder(name, tokens[start], counts)
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
            near = self._near(tokens[start + 1].parts)
            self._source(words[1] if near is None else near, counts)
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
        self.commands.append(Command(words, {**self.scope.env(), **env}, expanded, writes))

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
            if "--" in flags and counts:
                self._positional(tokens[flags.index("--") + 1 :])
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
                elif exports and not word and (file := _exported_file(token)) is not None:
                    held, self.scope.export_all = self.scope.export_all, True
                    self._source(file, counts)
                    self.scope.export_all = held
                continue
            name, add, value = assigned
            self._remember_folder(name, token, counts)
            if not counts:
                continue
            if add and name in self.scope.variables:
                value = [Text.join([*self.scope.variables[name], *value])]
            self.scope.set(name, value, exports)

    def _positional(self, tokens: list[Token]) -> None:
        """`set -- words`: what "$@" and "$1" stand for from here on."""
        self.scope.give([word for token in tokens for word in self.expand(token.parts)])

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

    def _remember_folder(self, name: str, token: Token, counts: bool) -> None:
        folder = self._near([*token.parts[1:], Part(Text("", []), False)])
        if counts and folder is None:
            self.folders.pop(name, None)
        elif counts and folder is not None:
            self.folders[name] = (
                Text.join([folder, Text.on("/", token.line)]) if folder.s else folder
            )

    def _near(self, parts: list[Part]) -> Text | None:
        """A path behind the folder of the script itself, seen from there; None for any other."""
        if len(parts) < 2 or not parts[0].expansion:
            return None
        expr = parts[0].text
        if expr.s in self.folders:
            up = self.folders[expr.s]
        elif _FOLDER.search(expr.s):
            levels = len(_ABOVE.findall(expr.s)) + max(0, expr.s.count("dirname") - 1)
            up = Text.on("../" * levels, expr.line)
        else:
            return None
        rest = self.joined(parts[1:])
        return Text.join([up, rest.cut(len(rest.s) - len(rest.s.lstrip("/")))])

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
