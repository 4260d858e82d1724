"""Shell scripts, Slurm jobs, PowerShell, justfiles, fenced blocks of Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.gate.hardware import card, family
from kvbudget.gate.program import share
from kvbudget.gate.readers.make import logical
from kvbudget.gate.shell_words import Scope
from kvbudget.gate.source import HOLE, Text
from kvbudget.gate.units import binary_size, is_count

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.draft import Draft

_SBATCH = re.compile(r"#SBATCH\s+(.*)")


def read_shell(context: Context) -> None:
    """A shell script; `#SBATCH` lines give cards and memory."""
    scope = Scope(outside=dict(context.outside))
    directives = _slurm(context.text)
    nodes = directives.get("nodes") or directives.get("N") or ""
    if is_count(nodes):
        scope.outside.setdefault("SLURM_NNODES", nodes)
        scope.outside.setdefault("SLURM_JOB_NUM_NODES", nodes)
    reader = context.reader()
    drafts = reader.script(context.text, scope)
    if directives:
        for draft in drafts:
            _apply_slurm(draft, directives)
    share(drafts, context.path)
    context.drafts.extend(drafts)
    context.absorb(reader)


def read_powershell(context: Context) -> None:
    """PowerShell: the back-tick continues a line."""
    reader = context.reader()
    drafts = reader.script(context.text, Scope(outside=dict(context.outside)), powershell=True)
    share(drafts, context.path)
    context.drafts.extend(drafts)
    context.absorb(reader)


def read_markdown(context: Context) -> None:
    """Fenced shell blocks (only when Markdown is included on purpose)."""
    rows = context.text.split_lines()
    block: list[Text] | None = None
    for row in rows:
        fence = re.match(r"\s*```+\s*(\w*)", row.s)
        if fence and block is None:
            block = (
                []
                if fence.group(1).lower() in ("", "sh", "bash", "shell", "console", "zsh")
                else None
            )
            if block is None:
                block = [Text.on("#", row.line)]
        elif fence:
            body = Text.join([row for row in block or [] if row.s != "#"], "\n")
            reader = context.reader()
            context.drafts.extend(reader.script(body, None, depth=1))
            block = None
        elif block is not None:
            block.append(row.cut(2) if row.s.startswith("$ ") else row)


# ---- Slurm -----------------------------------------------------------------------------------
def _slurm(text: Text) -> dict[str, str]:
    out: dict[str, str] = {}
    for row in text.s.split("\n"):
        match = _SBATCH.match(row)
        if not match:
            continue
        words = match.group(1).split()
        index = 0
        while index < len(words):
            word = words[index]
            if word.startswith("--"):
                name, sep, value = word[2:].partition("=")
                if not sep and index + 1 < len(words) and not words[index + 1].startswith("-"):
                    index += 1
                    value = words[index]
                out[name] = value
            elif word.startswith("-") and len(word) > 1:
                value = word[2:]
                if not value and index + 1 < len(words):
                    index += 1
                    value = words[index]
                out[word[1]] = value
            index += 1
    return out


def _apply_slurm(draft: Draft, directives: dict[str, str]) -> None:
    host = draft.host
    nodes = directives.get("nodes") or directives.get("N") or "1"
    if is_count(nodes):
        host.nodes = max(1, int(nodes))
    for name in ("gres", "gpus-per-node", "gpus", "G", "gpus-per-task"):
        value = directives.get(name)
        if value is None:
            continue
        for part in value.split(","):
            bits = [bit for bit in part.split(":") if bit != "gpu"]
            if name == "gres" and not part.startswith("gpu"):
                continue
            count = next(
                (
                    int(re.sub(r"\(.*", "", bit))
                    for bit in bits
                    if is_count(re.sub(r"\(.*", "", bit))
                ),
                None,
            )
            kind = next((bit for bit in bits if not bit[:1].isdigit()), None)
            if host.gpus is None:
                host.gpus = count if count is not None else (1 if name == "gres" else None)
            if kind and host.gpu_type is None and not family(kind):
                host.gpu_type = card(kind)
        break
    memory = directives.get("mem")
    if memory and memory != "0":
        size = binary_size(memory + ("m" if is_count(memory) else ""))
        if host.memory_limit is None:
            host.memory_limit = size


# ---- just ------------------------------------------------------------------------------------
_JUST_SET = re.compile(r"(export\s+)?([A-Za-z_][\w-]*)\s*:=\s*(.*)")
_JUST_HEAD = re.compile(r"@?([A-Za-z_][\w-]*)((?:\s+[^:]*)?):(?!=)")
_JUST_USE = re.compile(r"\{\{\{\{|\{\{(.*?)\}\}")


def read_just(context: Context) -> None:
    """Recipes of a justfile: `{{var}}`, parameters with defaults, `env_var_or_default`."""
    variables: dict[str, str] = {}
    exported: dict[str, int] = {}
    rows = logical(context.text.split_lines())
    reader = context.reader()
    recipe: list[Text] = []
    parameters: dict[str, str] = {}

    def flush() -> None:
        if not recipe:
            return
        known = {**variables, **parameters}
        body = Text.join(
            [
                row.sub(
                    _JUST_USE, lambda m: "{{" if m.group(1) is None else _just(m.group(1), known)
                )
                for row in recipe
            ],
            "\n",
        )
        scope = Scope(outside=dict(context.outside))
        for name, line in exported.items():
            if HOLE not in variables[name]:
                scope.set(name, [Text.on(variables[name], line)], exported=True)
        drafts = reader.script(body, scope, depth=1)
        share(drafts, f"{context.path}:{recipe[0].line}")
        context.drafts.extend(drafts)
        recipe.clear()

    for row in rows:
        if row.s[:1] in (" ", "\t") and row.s.strip():
            stripped = row.cut(len(row.s) - len(row.s.lstrip()))
            while stripped.s[:1] in ("@", "-") and not stripped.s.startswith("--"):
                stripped = stripped.cut(1)
            recipe.append(stripped)
            continue
        if not row.s.strip() or row.s.startswith("#"):
            continue
        flush()
        assigned = _JUST_SET.match(row.s)
        if assigned:
            variables[assigned.group(2)] = _just(assigned.group(3), variables)
            if assigned.group(1):
                exported[assigned.group(2)] = row.line
            continue
        head = _JUST_HEAD.match(row.s)
        parameters = {}
        if head:
            for match in re.finditer(
                r"[*+$]?([A-Za-z_][\w-]*)(?:\s*=\s*('[^']*'|\"[^\"]*\"|\S+))?", head.group(2)
            ):
                default = match.group(2)
                parameters[match.group(1)] = HOLE if default is None else _just(default, variables)
    flush()


def _just(expr: str, known: dict[str, str]) -> str:
    expr = expr.strip()
    match = re.fullmatch(r"'([^']*)'|\"([^\"]*)\"", expr)
    if match:
        return match.group(1) if match.group(1) is not None else match.group(2)
    if re.fullmatch(r"[A-Za-z_][\w-]*", expr):
        return known.get(expr, HOLE)
    if re.fullmatch(r"[\d.]+", expr):
        return expr
    match = re.fullmatch(r"env(?:_var_or_default)?\(\s*['\"]\w+['\"]\s*,\s*(.*)\)", expr)
    if match:
        return _just(match.group(1), known)
    if "+" in expr:
        parts = [_just(part, known) for part in expr.split("+")]
        return HOLE if any(HOLE in part for part in parts) else "".join(parts)
    return HOLE
