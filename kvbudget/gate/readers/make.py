"""Makefiles: recipes with `$(VAR)`, variables of single targets, exported variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.gate.program import share
from kvbudget.gate.shell_words import Scope
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_SET = re.compile(
    r"((?:(?:export|override|private)\s+)*)([\w.-]+)\s*(\?=|:::?=|:=|\+=|=)\s*(.*)", re.S
)
_EXPORT = re.compile(r"export\b((?:\s+[\w.-]+)*)\s*\Z")
_RULE = re.compile(r"([\w./%$(){}-]+(?:\s+[\w./%$(){}-]+)*)\s*::?(?![:=])\s*(.*)", re.S)
_USE = re.compile(r"\$\(([\w.-]+)\)|\$\{([\w.-]+)\}|\$\$|\$(?:\([^)]*\)|\{[^}]*\}|[@<^*?%+])")
_INCLUDE = re.compile(r"[-s]?include\s+(.+)")
_CONDITIONS = ("ifeq", "ifneq", "ifdef", "ifndef")
MAX_USES = 8


@dataclass
class _Variables:
    """Names with their raw value and line, and which of them the recipes inherit."""

    raw: dict[str, tuple[str, int]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    all_exported: bool = False

    def assign(self, said: re.Match[str], line: int, outer: _Variables | None = None) -> None:
        """One assignment; `outer` holds what a variable of a target adds to."""
        words, name, op, raw = said.groups()
        raw = re.sub(r"\\\n\s*", " ", raw).split(" #")[0].strip()
        old = self.raw.get(name) or (outer.raw.get(name) if outer is not None else None)
        if "export" in words:
            self.exported.add(name)
        if op == "?=" and old is not None:
            return
        if op == "+=" and old is not None:
            raw = f"{old[0]} {raw}"
        self.raw[name] = (raw, line)

    def under(self, own: _Variables) -> _Variables:
        """These, with the variables of a target over them."""
        return _Variables({**self.raw, **own.raw}, self.exported | own.exported, self.all_exported)

    def value(self, name: str, outside: dict[str, str], depth: int = 0) -> str:
        """A variable with everything it uses put in; HOLE where that is not known."""
        if name not in self.raw:
            return outside.get(name, HOLE)
        if depth > MAX_USES:
            return HOLE
        return _USE.sub(lambda m: self.use(m, outside, depth + 1), self.raw[name][0])

    def use(self, match: re.Match[str], outside: dict[str, str], depth: int = 0) -> str:
        """What one `$(...)` of a recipe or a value gives."""
        if match.group() == "$$":
            return "$"
        name = match.group(1) or match.group(2)
        return self.value(name, outside, depth) if name else HOLE


def read(context: Context) -> None:
    """The recipes of a Makefile, each as one script."""
    rows = logical(context.text.split_lines())
    shared, of_targets = _assignments(_included(context, rows))
    recipe: list[Text] = []
    targets: list[str] = []
    for row in rows:
        if row.s.startswith("\t") or (recipe and row.s.startswith("  ") and row.s.strip()):
            at = len(row.s) - len(row.s.lstrip())
            while row.s[at : at + 1] in ("@", "-", "+") and row.s[at : at + 1]:
                at += 1
            recipe.append(row.cut(at))
        elif row.s.strip() and not row.s.startswith("#"):
            _recipe(context, recipe, _of(targets, shared, of_targets))
            recipe, rule = [], _RULE.match(row.s)
            if rule is None or _SET.match(row.s):
                continue
            targets = rule.group(1).split()
            if ";" in rule.group(2) and not _SET.match(rule.group(2)):
                at = row.s.index(";", rule.start(2)) + 1
                recipe = [row.cut(at + len(row.s[at:]) - len(row.s[at:].lstrip(" \t@")))]
    _recipe(context, recipe, _of(targets, shared, of_targets))


def _included(context: Context, rows: list[Text]) -> list[Text]:
    """The rows with those of the files of the tree that they include, on the including line."""
    out: list[Text] = []
    for row in rows:
        include = _INCLUDE.match(row.s)
        names = include.group(1).split() if include is not None else []
        found = [context.tree.neighbour(name, context.path) for name in names]
        texts = [near[1] for near in found if near is not None]
        out += [part.moved(row.line) for text in texts for part in logical(text.split_lines())]
        out.append(row)
    return out


def _assignments(rows: list[Text]) -> tuple[_Variables, dict[str, _Variables]]:
    """Variables of the file and of its targets; what stands under a condition does not count."""
    shared = _Variables()
    of_targets: dict[str, _Variables] = {}
    conditions = 0
    for row in rows:
        if row.s.startswith(_CONDITIONS):
            conditions += 1
        elif row.s.startswith("endif"):
            conditions = max(0, conditions - 1)
        elif conditions or row.s.startswith(("\t", "#")):
            continue
        elif said := _SET.match(row.s):
            shared.assign(said, row.line)
        elif said := _EXPORT.match(row.s):
            shared.exported.update(said.group(1).split())
            shared.all_exported = shared.all_exported or not said.group(1).strip()
        elif (rule := _RULE.match(row.s)) and (said := _SET.match(rule.group(2))):
            for target in rule.group(1).split():
                of_targets.setdefault(target, _Variables()).assign(said, row.line, shared)
    return shared, of_targets


def _of(targets: list[str], shared: _Variables, of_targets: dict[str, _Variables]) -> _Variables:
    """Variables in force in the recipe of these targets."""
    for name, own in of_targets.items():
        pattern = "(.+)".join(re.escape(part) for part in name.split("%"))
        if any(re.fullmatch(pattern, target) for target in targets):
            shared = shared.under(own)
    return shared


def _recipe(context: Context, recipe: list[Text], variables: _Variables) -> None:
    if not recipe:
        return
    scope = Scope(outside=dict(context.outside))
    names = variables.raw if variables.all_exported else variables.exported & set(variables.raw)
    for name in sorted(names):
        text = variables.value(name, context.outside)
        if HOLE not in text:
            scope.set(name, [Text.on(text, variables.raw[name][1])], exported=True)
    body = Text.join(recipe, "\n").sub(_USE, lambda m: variables.use(m, context.outside))
    reader = context.reader()
    drafts = reader.script(body, scope, depth=1)
    share(drafts, f"{context.path}:{recipe[0].line}")
    context.drafts.extend(drafts)
    context.absorb(reader)


def logical(rows: list[Text]) -> list[Text]:
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
