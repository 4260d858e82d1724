"""Words of a shell script: variables, defaults, arrays and here-documents, as far as they are known."""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import dataclass, field

from kvbudget.gate.shell_lex import Lexer, Part, Token
from kvbudget.gate.source import HOLE, Text

MAX_NESTING = 8
MAX_ARITHMETIC = 120
_COUNT = re.compile(r"#([A-Za-z_]\w*)\[[@*]\]")
_NUMBERS = re.compile(r"[\d\s+*/%()<-]+")
_OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.floordiv, ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
}  # fmt: skip
Variables = dict[str, list[Text]]
"""Name -> words (a scalar has one); an unknown value is one HOLE."""


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

    def give(self, words: list[Text]) -> None:
        """What "$@" and "$1" stand for."""
        self.variables["@"] = words
        for index, word in enumerate(words, 1):
            self.variables[str(index)] = [word]

    def env(self) -> dict[str, Text]:
        """Exported variables with a value."""
        out: dict[str, Text] = {}
        for name in self.exported:
            words = self.variables.get(name)
            if words is not None:
                out[name] = Text.join(words, " ")
        return out


class Words:
    """Expands words in a scope; `depth` counts the open conditions around them."""

    def __init__(self, scope: Scope | None = None, *, powershell: bool = False) -> None:
        self.scope = scope or Scope()
        self.powershell = powershell
        self.depth = 0

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
            given = self.scope.variables.get("@", [Text.on(HOLE, line)])
            return [Text.on(word.s, line) for word in given]
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
        if expr.startswith("(("):
            return self._arithmetic(expr[1:], line, depth)
        if counted := _COUNT.fullmatch(expr):
            items = self.scope.variables.get(counted.group(1), [Text.on(HOLE, line)])
            return str(len(items)) if all(item.known for item in items) else HOLE
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

    def _arithmetic(self, expr: str, line: int, depth: int) -> str:
        """`$((2 * N))` of whole numbers and variables that hold them."""
        if depth > MAX_NESTING:
            return HOLE
        said = re.sub(
            r"\$?\{?([A-Za-z_]\w*)\}?", lambda m: self.lookup(m.group(1), line, depth + 1), expr
        )
        if len(said) > MAX_ARITHMETIC or not _NUMBERS.fullmatch(said):
            return HOLE
        try:
            value = _evaluate(ast.parse(said.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError):
            return HOLE
        return str(value)

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


def _evaluate(node: ast.expr) -> int:
    """Whole-number arithmetic as the shell does it. Raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    work = _OPERATORS.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    if work is None or not isinstance(node, ast.BinOp):
        raise ValueError("not arithmetic of whole numbers")
    left, right = _evaluate(node.left), _evaluate(node.right)
    if isinstance(node.op, ast.LShift) and not 0 <= right < 64:
        raise ValueError("too large")
    return int(work(left, right))


def _split(value: Text) -> list[Text]:
    return [value.cut(m.start(), m.end()) for m in re.finditer(r"\S+", value.s)]
