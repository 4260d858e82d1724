"""Jupyter notebooks: code cells, `!command` lines and `%%bash` cells, with lines of the .ipynb."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.gate.nodes import Node, json_document
from kvbudget.gate.program import share
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.shell_words import Scope
from kvbudget.gate.source import Text

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_MAGIC = re.compile(r"\s*[%!?]|.*\?\s*\Z")
_CELL = re.compile(r"%%(bash|sh|script\s+\S*(?:ba)?sh|writefile|capture|time\b|timeit)[^\n]*\n?")


def read(context: Context) -> None:
    """Cells share one Python scope; magics are taken out."""
    doc = json_document(context.text)
    python: list[Text] = []
    reader = context.reader()
    drafts = []
    for cell in doc.get("cells").elements():
        if cell.get("cell_type").s != "code":
            continue
        source = _source(cell.get("source"))
        if not source.s.strip():
            continue
        head = source.s.lstrip()
        if head.startswith("%%"):
            match = _CELL.match(head)
            if match is None or match.group(1) in ("writefile",):
                continue
            lead = len(source.s) - len(head) + match.end()
            if not match.group(1).startswith(("bash", "sh", "script")):
                python.append(source.cut(lead))
                continue
            drafts += _shell(reader, source.cut(lead))
            continue
        rows: list[Text] = []
        lines = source.split_lines()
        index = 0
        while index < len(lines):
            row = lines[index]
            text = row.s.lstrip()
            if text.startswith("!"):
                body = [row.cut(len(row.s) - len(text) + 1)]
                while body[-1].s.endswith("\\") and index + 1 < len(lines):
                    index += 1
                    body.append(lines[index])
                drafts += _shell(reader, Text.join(body, "\n"))
                rows.append(Text.on(row.s[: len(row.s) - len(text)] + "pass", row.line or 1))
            elif text.startswith("%"):
                if text.startswith(("%pip", "%conda")):
                    drafts += _shell(reader, row.cut(len(row.s) - len(text) + 1))
                rows.append(Text.on(row.s[: len(row.s) - len(text)] + "pass", row.line or 1))
            else:
                rows.append(row if row.s else Text("", []))
            index += 1
        python.append(Text.join(rows, "\n"))
    context.pins.extend(reader.pins)
    share(drafts, context.path)
    context.drafts.extend(drafts)
    _python(context, python)


def _python(context: Context, cells: list[Text]) -> None:
    from kvbudget.gate.readers import python

    good: list[Text] = []
    import ast

    for cell in cells:
        try:
            ast.parse(cell.s)
        except (SyntaxError, ValueError):
            continue
        good.append(cell)
    if good:
        context.drafts.extend(python.module(context, Text.join(good, "\n")))


def _shell(reader, text: Text) -> list:  # type: ignore[no-untyped-def, type-arg]  # noqa: ANN001
    try:
        return list(reader.script(text, Scope(), depth=1))
    except UnclosedQuote:
        return []


def _source(node: Node) -> Text:
    if node.is_list:
        return Text.join([item._raw for item in node.elements() if item._raw is not None])
    return node.text
