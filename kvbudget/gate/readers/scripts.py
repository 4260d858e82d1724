"""Shell scripts, Slurm jobs, PowerShell, Makefiles, justfiles, fenced blocks of Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.gate.hardware import card
from kvbudget.gate.program import share
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
            if kind and host.gpu_type is None:
                host.gpu_type = card(kind)
        break
    memory = directives.get("mem")
    if memory and memory != "0":
        size = binary_size(memory + ("m" if is_count(memory) else ""))
        if host.memory_limit is None:
            host.memory_limit = size


# ---- make ------------------------------------------------------------------------------------
_MAKE_SET = re.compile(r"(?:export\s+|override\s+)*([\w.-]+)\s*(\?=|:=|::=|=|\+=)\s*(.*)")
_MAKE_INLINE = re.compile(r"[\w./%-]+(?:\s+[\w./%-]+)*\s*:(?!=)[^;=]*;\s*@?")
_MAKE_USE = re.compile(r"\$\(([\w.-]+)\)|\$\{([\w.-]+)\}|\$\$|\$(?:\([^)]*\)|\{[^}]*\}|[@<^*?%+])")


def read_make(context: Context) -> None:
    """Recipes of a Makefile: `$(VAR)`, `?=`, `$$`, `@` and `-` prefixes."""
    variables: dict[str, str] = {}
    recipes: list[Text] = []
    exported: list[tuple[str, Text]] = []
    rows = _logical(context.text.split_lines())
    drafts: list[Draft] = []
    reader = context.reader()

    def value(name: str, depth: int = 0) -> str:
        if name not in variables:
            return context.outside.get(name, HOLE)
        if depth > 8:
            return HOLE
        return _MAKE_USE.sub(lambda m: _make_use(m, lambda n: value(n, depth + 1)), variables[name])

    conditional = 0
    for row in rows:
        if row.s.startswith(("ifeq", "ifneq", "ifdef", "ifndef")):
            conditional += 1
        elif row.s.startswith("endif"):
            conditional = max(0, conditional - 1)
        elif not row.s.startswith("\t") and not conditional:
            match = _MAKE_SET.match(row.s.replace("\\\n", " "))
            if match:
                name, op, raw = match.groups()
                raw = raw.split(" #")[0].strip()
                if op == "?=" and name in variables:
                    continue
                if op == "+=" and name in variables:
                    raw = f"{variables[name]} {raw}"
                variables[name] = raw
                if row.s.startswith("export"):
                    exported.append((name, row))
    for row in rows:
        if row.s.startswith("\t") or (recipes and row.s.startswith("  ") and row.s.strip()):
            line = row
            at = len(line.s) - len(line.s.lstrip())
            while line.s[at : at + 1] in ("@", "-", "+") and line.s[at : at + 1]:
                at += 1
            body = line.cut(at).sub(_MAKE_USE, lambda m: _make_use(m, value))
            recipes.append(body)
        elif row.s.strip() and not row.s.startswith("#"):
            drafts += _recipe(context, reader, recipes, exported, value)
            inline = _MAKE_INLINE.match(row.s)
            recipes = (
                [row.cut(inline.end()).sub(_MAKE_USE, lambda m: _make_use(m, value))]
                if inline
                else []
            )
    drafts += _recipe(context, reader, recipes, exported, value)
    context.drafts.extend(drafts)
    context.absorb(reader)


def _recipe(context, reader, recipes, exported, value) -> list[Draft]:  # type: ignore[no-untyped-def]  # noqa: ANN001
    if not recipes:
        return []
    scope = Scope(outside=dict(context.outside))
    for name, row in exported:
        text = value(name)
        if HOLE not in text:
            scope.set(name, [Text.on(text, row.line)], exported=True)
    drafts: list[Draft] = reader.script(Text.join(recipes, "\n"), scope, depth=1)
    share(drafts, f"{context.path}:{recipes[0].line}")
    return drafts


def _make_use(match: re.Match[str], value) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    if match.group() == "$$":
        return "$"
    name = match.group(1) or match.group(2)
    return str(value(name)) if name else HOLE


def _logical(rows: list[Text]) -> list[Text]:
    """Physical lines joined at a trailing backslash (which is kept)."""
    out: list[Text] = []
    held: list[Text] = []
    for row in rows:
        held.append(row)
        if row.s.endswith("\\"):
            continue
        out.append(Text.join(held, "\n"))
        held = []
    if held:
        out.append(Text.join(held, "\n"))
    return out


# ---- just ------------------------------------------------------------------------------------
_JUST_SET = re.compile(r"(export\s+)?([A-Za-z_][\w-]*)\s*:=\s*(.*)")
_JUST_HEAD = re.compile(r"@?([A-Za-z_][\w-]*)((?:\s+[^:]*)?):(?!=)")
_JUST_USE = re.compile(r"\{\{\{\{|\{\{(.*?)\}\}")


def read_just(context: Context) -> None:
    """Recipes of a justfile: `{{var}}`, parameters with defaults, `env_var_or_default`."""
    variables: dict[str, str] = {}
    exported: dict[str, int] = {}
    rows = _logical(context.text.split_lines())
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
