"""Un-rendered templates (Helm, Jinja): what can be resolved is, the rest is a hole."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kvbudget.gate.nodes import Malformed, documents
from kvbudget.gate.readers.helm import ACTION, OPENS, Chart, Renderer
from kvbudget.gate.source import Text

if TYPE_CHECKING:
    from kvbudget.gate.context import Context


def _chart(context: Context) -> Chart:
    """values.yaml, Chart.yaml and the named templates around a file."""
    chart = Chart()
    root = chart_root(context)
    files = [found.path for found in context.tree.files]
    if root is None:
        beside = PurePosixPath(context.path).parent
        helpers = [name for name in files if PurePosixPath(name).parent == beside]
        _helpers(chart, context, [name for name in helpers if name.endswith(".tpl")])
        return chart
    prefix = f"{root}/" if root else ""
    if context.tree.read(f"{prefix}values.yaml") is not None:
        chart.values = _yaml(context, f"{prefix}values.yaml") or {}
    about = _yaml(context, f"{prefix}Chart.yaml") or {}
    if isinstance(about, dict):
        chart.version = str(about.get("appVersion")) if about.get("appVersion") else None
    names = [name for name in files if name.startswith(f"{prefix}templates/")]
    _helpers(chart, context, [*names, f"{prefix}templates/_helpers.tpl"])
    return chart


def _helpers(chart: Chart, context: Context, names: list[str]) -> None:
    for name in dict.fromkeys(names):
        text = context.tree.read(name)
        if text is not None and "define" in text.s:
            _define(chart, text)


def _define(chart: Chart, text: Text) -> None:
    spans = list(ACTION.finditer(text.s))
    for index, match in enumerate(spans):
        head = re.match(r"define\s+\"([^\"]+)\"", match.group(1) or "")
        if not head:
            continue
        depth = 1
        for later in spans[index + 1 :]:
            word = (later.group(1) or "").split(" ", 1)[0]
            depth += word in OPENS
            depth -= word == "end"
            if depth == 0:
                chart.defines[head.group(1)] = text.cut(match.end(), later.start())
                break


def chart_root(context: Context) -> str | None:
    """Folder with Chart.yaml above a template; None if there is none."""
    parts = PurePosixPath(context.path).parts[:-1]
    for size in range(len(parts), -1, -1):
        folder = "/".join(parts[:size])
        prefix = f"{folder}/" if folder else ""
        if context.tree.read(f"{prefix}Chart.yaml") is not None:
            return folder
    if "templates" in parts:
        return "/".join(parts[: parts.index("templates")])
    return None


def in_chart(context: Context) -> bool:
    """True for a file under a chart's templates/."""
    return "templates" in PurePosixPath(context.path).parts and (
        "{{" in context.text.s
        and re.search(r"\.Values|\.Release|include\s", context.text.s) is not None
    )


def _yaml(context: Context, path: str) -> Any:  # noqa: ANN401 - YAML
    text = context.tree.read(path)
    if text is None:
        return None
    try:
        docs = documents(text)
        return docs[0].value() if docs else None
    except Malformed:
        return None


def read(context: Context) -> None:
    """Resolve, then read as YAML; where that fails, look at the words line by line."""
    text = rendered(context)
    try:
        docs = documents(text)
    except Malformed:
        loose(context, text)
        return
    context.read(docs)
    if not context.drafts and any("\n" in d.s for d in docs if d.is_scalar):
        loose(context, text)


def rendered(context: Context) -> Text:
    """The text with what its chart says; the rest is a hole."""
    return Renderer(_chart(context)).render(context.text)


def loose(context: Context, text: Text) -> None:
    """A template that is no YAML even so: documents are tried one by one."""
    rows = text.split_lines()
    chunk: list[Text] = []
    for row in [*rows, Text.on("---", 0)]:
        if row.s.strip() == "---":
            if chunk:
                try:
                    context.read(documents(Text.join(chunk, "\n")))
                except Malformed:
                    _repair(context, chunk)
            chunk = []
        else:
            chunk.append(row)


def _repair(context: Context, rows: list[Text]) -> None:
    """Leave out lines that keep the rest from being YAML (at most a few)."""
    kept = list(rows)
    for _ in range(12):
        try:
            docs = documents(Text.join(kept, "\n"))
        except Malformed as exc:
            bad = [row for row in kept if row.line == exc.line] or kept[-1:]
            if not bad or len(kept) < 2:
                return
            kept = [row for row in kept if row not in bad]
            continue
        context.read(docs)
        return
