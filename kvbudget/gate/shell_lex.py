"""POSIX shell, read into tokens that keep their lines (no expansion, no execution)."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvbudget.gate.source import Text


@dataclass
class Part:
    """A piece of a word: literal text, or an expansion (`expr` is what stands inside `${}`)."""

    text: Text
    quoted: bool
    expansion: bool = False


@dataclass
class Token:
    """kind is `word`, `op`, `array` (NAME=(...)) or `end`."""

    kind: str
    line: int
    op: str = ""
    parts: list[Part] = field(default_factory=list)
    items: list[list[Part]] = field(default_factory=list)
    body: Text | None = None
    raw_body: bool = False

    def literal(self) -> str:
        """The word as written, quotes removed, expansions left out."""
        return "".join(part.text.s for part in self.parts if not part.expansion)


class UnclosedQuote(Exception):
    """A quote, `${` or `$(` without its end."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"unclosed {what}")
        self.what, self.line = what, line


_OPS = (
    "&>>",
    "<<<",
    "<<-",
    "&&",
    "||",
    ";;&",
    ";;",
    ";&",
    "|&",
    "<<",
    ">>",
    ">&",
    "<&",
    "&>",
    ">|",
    "<>",
)
_META = set("|&;<>()\n \t")


class Lexer:
    """Tokens of one script. `escape` is the continuation sign (PowerShell: a backtick)."""

    def __init__(self, text: Text, escape: str = "\\") -> None:
        self.text = text
        self.s = text.s
        self.at = 0
        self.escape = escape
        self.pending: list[tuple[Token, str, bool, bool]] = []

    def line(self, at: int | None = None) -> int:
        at = self.at if at is None else at
        lines = self.text.lines
        return lines[at] if at < len(lines) else (lines[-1] if lines else 0)

    def tokens(self) -> list[Token]:
        """All tokens; raises UnclosedQuote."""
        out: list[Token] = []
        while True:
            token = self.next()
            out.append(token)
            if token.kind == "end":
                return out

    def next(self) -> Token:
        s, size = self.s, len(self.s)
        while self.at < size:
            char = s[self.at]
            if char in " \t\r":
                self.at += 1
            elif char == self.escape and s[self.at + 1 : self.at + 2] == "\n":
                self.at += 2
            elif char == self.escape and self.at + 1 == size:
                self.at += 1
            elif char == "#":
                end = s.find("\n", self.at)
                self.at = size if end < 0 else end
            elif self.escape == "`" and s.startswith("<#", self.at):
                end = s.find("#>", self.at)
                self.at = size if end < 0 else end + 2
            else:
                break
        if self.at >= size:
            return Token("end", self.line())
        char = s[self.at]
        line = self.line()
        if char.isdigit():
            end = self.at
            while end < size and s[end].isdigit():
                end += 1
            if s[end : end + 1] in ("<", ">"):  # a file descriptor before a redirection
                self.at = end
                char = s[end]
        if char == "\n":
            self.at += 1
            self._heredocs()
            return Token("op", line, "\n")
        for op in _OPS:
            if s.startswith(op, self.at):  # noqa: SIM102 - the longest first
                if op[0] in "<>" or op.startswith("&>") or op in ("&&", "||", "|&") or op[0] == ";":
                    self.at += len(op)
                    token = Token("op", line, op)
                    if op in ("<<", "<<-"):
                        self._heredoc_start(token, op == "<<-")
                    return token
        if char in "<>" and s.startswith("(", self.at + 1):
            part = self._paren(self.at + 2)
            return Token("word", line, parts=[part])
        if char in "|&;<>()":
            self.at += 1
            return Token("op", line, char)
        return self._word(line)

    def _heredoc_start(self, token: Token, tabs: bool) -> None:
        word = self.next()
        if word.kind != "word":
            return
        quoted = any(part.quoted for part in word.parts)
        self.pending.append((token, word.literal(), quoted, tabs))

    def _heredocs(self) -> None:
        for token, stop, quoted, tabs in self.pending:
            start = self.at
            lines: list[tuple[int, int]] = []
            while self.at < len(self.s):
                end = self.s.find("\n", self.at)
                end = len(self.s) if end < 0 else end
                row = self.s[self.at : end]
                cut = len(row) - len(row.lstrip("\t")) if tabs else 0
                if row[cut:].rstrip() == stop:
                    self.at = min(end + 1, len(self.s))
                    break
                lines.append((self.at + cut, min(end + 1, len(self.s))))
                self.at = end + 1
            self.at = min(self.at, len(self.s))
            body = Text.join([self.text.cut(a, b) for a, b in lines]) if lines else Text("", [])
            token.body = body if body.s else Text.on("\n", self.line(min(start, len(self.s) - 1)))
            token.raw_body = quoted
        self.pending = []

    def _word(self, line: int) -> Token:
        token = Token("word", line)
        s, size = self.s, len(self.s)
        buffer_start = self.at
        plain: list[tuple[int, int]] = []

        def flush(quoted: bool = False) -> None:
            if plain:
                text = Text.join([self.text.cut(a, b) for a, b in plain])
                token.parts.append(Part(text, quoted))
                plain.clear()

        while self.at < size:
            char = s[self.at]
            if char in _META or char == "\r":
                if char == "(" and plain and s[plain[-1][1] - 1 : plain[-1][1]] == "=":
                    flush()
                    token.kind = "array"
                    self.at += 1
                    self._array(token)
                    return token
                break
            if char == self.escape:
                if s[self.at + 1 : self.at + 2] == "\n":
                    self.at += 2
                    continue
                if self.at + 1 < size:
                    plain.append((self.at + 1, self.at + 2))
                self.at += 2
            elif char == "'":
                flush()
                end = s.find("'", self.at + 1)
                if end < 0:
                    raise UnclosedQuote("single quote", self.line(self.at))
                token.parts.append(Part(self._single(self.at + 1, end), True))
                self.at = end + 1
            elif char == '"':
                flush()
                self._double(token)
            elif char == "$":
                flush()
                if not self._dollar(token, False):
                    plain.append((self.at, self.at + 1))
                    self.at += 1
            elif char == "`" and self.escape != "`":
                flush()
                token.parts.append(self._backtick(False))
            else:
                end = self.at
                while end < size and s[end] not in _META and s[end] not in "\\'\"$`\r":
                    end += 1
                end = max(end, self.at + 1)
                plain.append((self.at, end))
                self.at = end
        flush()
        if not token.parts and self.at == buffer_start:
            self.at += 1
        return token

    def _single(self, start: int, end: int) -> Text:
        text = self.text.cut(start, end)
        return text if text.s else Text("", [])

    def _array(self, token: Token) -> None:
        while True:
            item = self.next()
            if item.kind == "end":
                raise UnclosedQuote("array parenthesis", token.line)
            if item.kind == "op" and item.op == ")":
                return
            if item.kind in ("word", "array"):
                token.items.append(item.parts)

    def _double(self, token: Token) -> None:
        start = self.at
        s, size = self.s, len(self.s)
        self.at += 1
        pieces: list[tuple[int, int]] = []
        empty = True

        def flush() -> None:
            if pieces:
                token.parts.append(Part(Text.join([self.text.cut(a, b) for a, b in pieces]), True))
                pieces.clear()

        while True:
            if self.at >= size:
                raise UnclosedQuote("double quote", self.line(start))
            char = s[self.at]
            if char == '"':
                self.at += 1
                break
            empty = False
            if char == self.escape and self.at + 1 < size:
                after = s[self.at + 1]
                if after == "\n":
                    self.at += 2
                    continue
                if after in '"\\$`':
                    pieces.append((self.at + 1, self.at + 2))
                else:
                    pieces.append((self.at, self.at + 2))
                self.at += 2
            elif char == "$":
                flush()
                if not self._dollar(token, True):
                    pieces.append((self.at, self.at + 1))
                    self.at += 1
            elif char == "`" and self.escape != "`":
                flush()
                token.parts.append(self._backtick(True))
            else:
                end = self.at + 1
                while end < size and s[end] not in '"\\$`':
                    end += 1
                pieces.append((self.at, end))
                self.at = end
        flush()
        if empty:
            token.parts.append(Part(Text("", []), True))

    def _backtick(self, quoted: bool) -> Part:
        start = self.at
        end = self.s.find("`", self.at + 1)
        if end < 0:
            raise UnclosedQuote("backquote", self.line(start))
        self.at = end + 1
        return Part(Text.on("()", self.line(start)), quoted, True)

    def _dollar(self, token: Token, quoted: bool) -> bool:
        s, at = self.s, self.at
        after = s[at + 1 : at + 2]
        if after == "{":
            end = self._closing(at + 2, "{", "}")
            token.parts.append(Part(self.text.cut(at + 2, end), quoted, True))
            self.at = end + 1
            return True
        if after == "(":
            part = self._paren(at + 2)
            part.quoted = quoted
            token.parts.append(part)
            return True
        if after == "'" and not quoted:
            end = at + 2
            while end < len(s) and s[end] != "'":
                end += 2 if s[end] == "\\" else 1
            token.parts.append(Part(self.text.cut(at + 2, end), True))
            self.at = end + 1
            return True
        if after.isalpha() or after == "_":
            end = at + 1
            while end < len(s) and (s[end].isalnum() or s[end] == "_"):
                end += 1
            if self.escape == "`" and s[end : end + 1] == ":":
                stop = end + 1
                while stop < len(s) and (s[stop].isalnum() or s[stop] == "_"):
                    stop += 1
                end = stop
            token.parts.append(Part(self.text.cut(at + 1, end), quoted, True))
            self.at = end
            return True
        if after and after in "0123456789@*#?!$-":
            token.parts.append(Part(self.text.cut(at + 1, at + 2), quoted, True))
            self.at = at + 2
            return True
        return False

    def _paren(self, start: int) -> Part:
        """`$( ... )`: its text has no static value; the inside is kept as "(...)"."""
        end = self._closing(start, "(", ")")
        inner = self.text.cut(start, end)
        self.at = end + 1
        mark = Text.on("(", self.line(start - 1))
        return Part(Text.join([mark, inner]), False, True)

    def _closing(self, at: int, opens: str, closes: str) -> int:
        depth, start = 1, at
        s, size = self.s, len(self.s)
        while at < size:
            char = s[at]
            if char == "\\":
                at += 2
                continue
            if char == "'" and (opens == "(" or depth > 1):
                found = s.find("'", at + 1)
                at = size if found < 0 else found + 1
                continue
            if char == '"':
                at += 1
                while at < size and s[at] != '"':
                    at += 2 if s[at] == "\\" else 1
            elif char == opens:
                depth += 1
            elif char == closes:
                depth -= 1
                if depth == 0:
                    return at
            at += 1
        raise UnclosedQuote("$" + opens, self.line(start - 1))
