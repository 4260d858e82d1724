"""HCL (Nomad, Terraform) read into blocks and nodes that keep their lines."""

from __future__ import annotations

import re

from kvbudget.gate.hcl_block import Block, to_node
from kvbudget.gate.nodes import MAX_DEPTH, Malformed, Node
from kvbudget.gate.source import HOLE, Text

_IDENT = re.compile(r"[A-Za-z_][\w-]*")
_REFERENCE = re.compile(r"[\w-]+(?:\.[\w*-]+|\[[^\[\]\n]*\])*")
_CALL = re.compile(
    r"(jsonencode|yamlencode|yamldecode|tostring|tonumber|tolist|tomap|toset|trimspace|chomp|flatten|concat"
    r"|compact|split)\("
)


class Parser:
    """One file. `values` resolves `var.x` and `local.x`."""

    def __init__(self, text: Text, values: dict[str, Node] | None = None) -> None:
        self.text, self.s = text, text.s
        self.at = 0
        self.values = values or {}
        self.depth = 0

    def line(self) -> int:
        lines = self.text.lines
        return lines[min(self.at, len(lines) - 1)] if lines else 1

    def fail(self, what: str) -> Malformed:
        return Malformed("HCL", self.line(), what)

    def skip(self, *, newlines: bool = True) -> None:
        s = self.s
        while self.at < len(s):
            char = s[self.at]
            if char in " \t\r" or (newlines and char == "\n"):
                self.at += 1
            elif char == "#" or s.startswith("//", self.at):
                end = s.find("\n", self.at)
                self.at = len(s) if end < 0 else end
            elif s.startswith("/*", self.at):
                end = s.find("*/", self.at)
                self.at = len(s) if end < 0 else end + 2
            else:
                return

    def body(self, block: Block, *, top: bool = False) -> Block:
        """Attributes and blocks up to `}` (or the end)."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("nested too deeply")
        while True:
            self.skip()
            if self.at >= len(self.s):
                if not top:
                    raise self.fail(f"block {block.type!r} of line {block.line} is not closed")
                break
            if self.s[self.at] == "}":
                if top:
                    raise self.fail("unexpected }")
                self.at += 1
                break
            if self.s[self.at] in ",;":
                self.at += 1
                continue
            self._entry(block)
        self.depth -= 1
        return block

    def _entry(self, block: Block) -> None:
        line = self.line()
        if self.s[self.at] == '"':
            name = self.string().s
        elif self.s[self.at] == "(":
            name = self._computed()
        else:
            match = _IDENT.match(self.s, self.at)
            if not match:
                raise self.fail(f"unexpected {self.s[self.at]!r}")
            name = match.group()
            self.at = match.end()
        labels: list[str] = []
        while True:
            self.skip(newlines=False)
            char = self.s[self.at : self.at + 1]
            if char == '"':
                labels.append(self.string().s)
            elif char == "{":
                self.at += 1
                block.blocks.append(self.body(Block(name, labels, line)))
                return
            elif char in ("=", ":") and not self.s.startswith("==", self.at):
                self.at += 1
                block.attrs[name] = (line, self.expression())
                return
            else:
                match = _IDENT.match(self.s, self.at)
                if not match:
                    raise self.fail(f"expected = or {{ after {name!r}")
                labels.append(match.group())
                self.at = match.end()

    # ---- expressions ----
    def expression(self) -> Node:
        self.skip()
        line = self.line()
        node = self._operand()
        self.skip(newlines=False)
        after = self.s[self.at : self.at + 1]
        if after and after not in "\n,]})#" and not self.s.startswith("//", self.at):
            self._opaque()
            return Node.scalar(Text.on(HOLE, line), line)
        return node

    def _operand(self) -> Node:
        s, line = self.s, self.line()
        char = s[self.at : self.at + 1]
        if char == '"':
            return Node.scalar(self.string(), line, plain=False)
        if s.startswith("<<", self.at):
            return Node.scalar(self._heredoc(), line, plain=False)
        if char == "[":
            return self._list(line)
        if char == "{":
            return self._object(line)
        call = _CALL.match(s, self.at)
        if call:
            self.at = call.end()
            inner = self.expression()
            items = [inner]
            self.skip()
            while s[self.at : self.at + 1] == ",":
                self.at += 1
                self.skip()
                if s[self.at : self.at + 1] == ")":
                    break
                items.append(self.expression())
                self.skip()
            if s[self.at : self.at + 1] == ")":
                self.at += 1
            if call.group(1) == "split" and len(items) == 2 and items[1].text.known:
                words = re.finditer(r"\S+", items[1].s) if not items[0].s.strip() else ()
                parts = [items[1].text.cut(m.start(), m.end()) for m in words]
                return Node.sequence([Node.scalar(part, part.line) for part in parts], line)
            if call.group(1) in ("concat", "flatten", "compact"):
                merged = [
                    item for part in items for item in (part.elements() if part.is_list else [part])
                ]
                return Node.sequence(merged, line)
            return inner
        number = re.compile(r"-?\d[\d.]*(?:[eE][-+]?\d+)?(?![\w.])").match(s, self.at)
        if number:
            self.at = number.end()
            return Node.scalar(self.text.cut(number.start(), number.end()), line)
        match = _REFERENCE.match(s, self.at)
        if match and match.end() > self.at:
            word = match.group()
            if s[match.end() : match.end() + 1] == "(":
                self._opaque()
                return Node.scalar(Text.on(HOLE, line), line)
            self.at = match.end()
            if word in ("true", "false", "null"):
                return Node.scalar(Text.on(word, line), line)
            return self.resolve(word, line)
        self._opaque()
        return Node.scalar(Text.on(HOLE, line), line)

    def resolve(self, word: str, line: int) -> Node:
        """A reference, standing where it is used."""
        found = self.values.get(word)
        if found is None:
            return Node.scalar(Text.on(HOLE, line), line)
        if found.is_scalar:
            return Node.scalar(Text.on(found.s, line), line, plain=found.plain)
        return _moved(found, line)

    def _opaque(self) -> None:
        depth = 0
        s = self.s
        while self.at < len(s):
            char = s[self.at]
            if char == '"':
                self.string()
                continue
            if s.startswith("<<", self.at) and re.match(r"<<-?\w", s[self.at : self.at + 4]):
                self._heredoc()
                continue
            if char in "([{":
                depth += 1
            elif char in ")]}":
                if depth == 0:
                    return
                depth -= 1
            elif depth == 0 and char in "\n,":
                return
            self.at += 1

    def _list(self, line: int) -> Node:
        self.at += 1
        items: list[Node] = []
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("nested too deeply")
        while True:
            self.skip()
            if self.at >= len(self.s):
                raise Malformed("HCL", line, "a list is not closed")
            if self.s[self.at] == "]":
                self.at += 1
                break
            if self.s[self.at] == ",":
                self.at += 1
                continue
            before = self.at
            items.append(self.expression())
            if self.at == before:
                raise self.fail(f"unexpected {self.s[self.at]!r}")
        self.depth -= 1
        return Node.sequence(items, line)

    def _computed(self) -> str:
        """The key in `(var.name) = value`."""
        start = self.at
        self.at += 1
        self._opaque()
        word = self.s[start + 1 : self.at].strip()
        self.at = min(self.at + 1, len(self.s))
        found = self.values.get(word)
        return found.s if found is not None and found.is_scalar else HOLE

    def _object(self, line: int) -> Node:
        self.at += 1
        self.skip()
        if re.match(r"for\s", self.s[self.at : self.at + 4]):
            self._opaque()
            self.at += 1
            return Node.scalar(Text.on(HOLE, line), line)
        block = self.body(Block("", [], line))
        items = [(Text.on(key, at), node) for key, (at, node) in block.attrs.items()]
        items += [(Text.on(inner.type, inner.line), to_node(inner)) for inner in block.blocks]
        return Node.mapping(items, line)

    def string(self) -> Text:
        """A quoted template; the cursor stands on the quote."""
        start = self.at
        self.at += 1
        parts: list[Text] = []
        s = self.s
        while True:
            if self.at >= len(s) or s[self.at] == "\n":
                self.at = start
                raise self.fail("a string is not closed")
            char = s[self.at]
            if char == '"':
                self.at += 1
                return Text.join(parts)
            if char == "\\":
                code = s[self.at + 1 : self.at + 2]
                new = {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)
                parts.append(Text.on(new, self.line()))
                self.at += 2
            elif s.startswith(("$${", "%%{"), self.at):
                parts.append(self.text.cut(self.at + 1, self.at + 3))
                self.at += 3
            elif s.startswith(("${", "%{"), self.at):
                parts.append(self._interpolation())
            else:
                end = self.at + 1
                while end < len(s) and s[end] not in '"\\$%\n':
                    end += 1
                parts.append(self.text.cut(self.at, end))
                self.at = end

    def _interpolation(self) -> Text:
        line = self.line()
        control = self.s[self.at] == "%"
        self.at += 2
        start = self.at
        depth = 1
        while self.at < len(self.s) and depth:
            char = self.s[self.at]
            if char == '"':
                self.string()
                continue
            depth += char == "{"
            depth -= char == "}"
            self.at += 1
        expr = self.s[start : self.at - 1].strip()
        if control:
            return Text.on(HOLE, line)
        expr = re.sub(r"\A(?:tostring|trimspace)\((.*)\)\Z", r"\1", expr)
        if re.fullmatch(r"[\w.-]+", expr):
            if expr in self.values and self.values[expr].is_scalar:
                return Text.on(self.values[expr].s, line)
            if "." not in expr and expr.isupper():
                return Text.on("${" + expr + "}", line)
        return Text.on(HOLE, line)

    def _heredoc(self) -> Text:
        match = re.compile(r"<<(-?)(\w+)[^\n]*\n").match(self.s, self.at)
        if not match:
            raise self.fail("a heredoc without a name")
        self.at = match.end()
        rows: list[Text] = []
        while self.at < len(self.s):
            end = self.s.find("\n", self.at)
            end = len(self.s) if end < 0 else end
            row = self.s[self.at : end]
            if row.strip() == match.group(2):
                self.at = end
                break
            rows.append(self.text.cut(self.at, min(end + 1, len(self.s))))
            self.at = end + 1
        self.at = min(self.at, len(self.s))
        if match.group(1) and rows:
            cut = min((len(r.s) - len(r.s.lstrip()) for r in rows if r.s.strip()), default=0)
            rows = [row.cut(cut) if row.s.strip() else row for row in rows]
        body = Text.join(rows)
        pattern = re.compile(r"\$\$\{|\$\{([^{}]*)\}")

        def value(m: re.Match[str]) -> str | None:
            if m.group(1) is None:
                return "${"
            expr = m.group(1).strip()
            found = self.values.get(expr)
            if found is not None and found.is_scalar:
                return found.s
            return HOLE

        return body.sub(pattern, value)


def _moved(node: Node, line: int) -> Node:
    """A value standing where it is used, not where it is defined."""
    if node.is_scalar:
        return Node.scalar(Text.on(node.s, line), line, plain=node.plain) if node.present else node
    if node.is_list:
        return Node.sequence([_moved(item, line) for item in node.elements()], line)
    return Node.mapping([(key.moved(line), _moved(item, line)) for key, item in node.items()], line)


def parse(text: Text, outside: dict[str, Node] | None = None) -> Block:
    """A file: variables' defaults and locals are resolved. Raises Malformed."""
    values = dict(outside or {})
    first = Parser(text, values).body(Block("", [], 1), top=True)
    for block in first.blocks:
        if block.type == "variable" and block.labels and "default" in block.attrs:
            values.setdefault(f"var.{block.labels[0]}", block.attr("default"))
    for _ in range(3):
        changed = Parser(text, values).body(Block("", [], 1), top=True)
        for block in changed.blocks:
            if block.type == "locals":
                for name, (_, node) in block.attrs.items():
                    values[f"local.{name}"] = node
        first = changed
        if not any(block.type == "locals" for block in changed.blocks):
            break
    return first


def variables(text: Text) -> dict[str, Node]:
    """Defaults of the variables a file declares (for its neighbours)."""
    out: dict[str, Node] = {}
    try:
        for block in Parser(text).body(Block("", [], 1), top=True).blocks:
            if block.type == "variable" and block.labels and "default" in block.attrs:
                out[f"var.{block.labels[0]}"] = block.attr("default")
    except Malformed:
        return {}
    return out
