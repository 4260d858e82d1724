"""Jupyter notebooks: code cells, `!command` lines and `%%bash` cells, with lines of the .ipynb."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.gate.nodes import Malformed, Node, json_document
from kvbudget.gate.program import share
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.shell_words import Scope
from kvbudget.gate.source import Text

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.draft import Draft
    from kvbudget.gate.program import Reader

_COMMAND = re.compile(r"^[ \t]*[!%]\w", re.M)
_DATABRICKS = "# Databricks notebook source"
_CELL = re.compile(r"%%(bash|sh|script\s+\S*(?:ba)?sh|writefile|capture|time\b|timeit)[^\n]*\n?")


def read(context: Context) -> None:
    """Cells share one Python scope; magics are taken out."""
    doc = json_document(context.text)
    python: list[Text] = []
    reader = context.reader()
    drafts: list[Draft] = []
    for cell in doc.get("cells").elements():
        if cell.get("cell_type").s != "code":
            continue
        source = _source(cell.get("source"))
        if not source.s.strip():
            continue
        drafts += _cell(reader, source, python)
    _finish(context, reader, drafts, python)


def read_python(context: Context) -> None:
    """A Python file, or a notebook saved as one: `!command` lines, Databricks' `# MAGIC` cells.

    Raises Malformed with the line of the syntax error.
    """
    from kvbudget.gate.readers import python

    text = context.text
    databricks = text.s.startswith(_DATABRICKS)
    if not databricks:
        try:
            python.read(context)
        except Malformed:
            if not _COMMAND.search(text.s):
                raise
        else:
            return
    reader = context.reader()
    cells: list[Text] = []
    drafts: list[Draft] = []
    for source in _exported(text) if databricks else [text]:
        drafts += _cell(reader, source, cells)
    _finish(context, reader, drafts, cells)


def _exported(text: Text) -> list[Text]:
    """Cells of a notebook that Databricks wrote as a Python file."""
    cells: list[list[Text]] = [[]]
    for row in text.split_lines():
        if row.s.startswith("# COMMAND ---"):
            cells.append([])
            continue
        said = row.cut(len("# MAGIC ")) if row.s.startswith("# MAGIC") else row
        if said.s.startswith("%sh"):
            said = Text.on("%%sh", row.line)
        cells[-1].append(said)
    return [Text.join(rows, "\n") for rows in cells]


def _cell(reader: Reader, source: Text, python: list[Text]) -> list[Draft]:
    """Processes that a cell's commands start; what is Python in it goes to `python`."""
    drafts: list[Draft] = []
    head = source.s.lstrip()
    if head.startswith("%%"):
        match = _CELL.match(head)
        if match is None or match.group(1) in ("writefile",):
            return []
        body = source.cut(len(source.s) - len(head) + match.end())
        if match.group(1).startswith(("bash", "sh", "script")):
            return _shell(reader, body)
        python.append(body)
        return []
    rows: list[Text] = []
    lines = source.split_lines()
    index = 0
    while index < len(lines):
        row = lines[index]
        text = row.s.lstrip()
        if text.startswith("!"):
            body_rows = [row.cut(len(row.s) - len(text) + 1)]
            while body_rows[-1].s.endswith("\\") and index + 1 < len(lines):
                index += 1
                body_rows.append(lines[index])
            drafts += _shell(reader, Text.join(body_rows, "\n"))
            rows.append(Text.on(row.s[: len(row.s) - len(text)] + "pass", row.line or 1))
        elif text.startswith("%"):
            if text.startswith(("%pip", "%conda")):
                drafts += _shell(reader, row.cut(len(row.s) - len(text) + 1))
            rows.append(Text.on(row.s[: len(row.s) - len(text)] + "pass", row.line or 1))
        else:
            rows.append(row if row.s else Text("", []))
        index += 1
    python.append(Text.join(rows, "\n"))
    return drafts


def _finish(context: Context, reader: Reader, drafts: list[Draft], python: list[Text]) -> None:
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


def _shell(reader: Reader, text: Text) -> list[Draft]:
    try:
        return list(reader.script(text, Scope(), depth=1))
    except UnclosedQuote:
        return []


def _source(node: Node) -> Text:
    if node.is_list:
        return Text.join([item._raw for item in node.elements() if item._raw is not None])
    return node.text
