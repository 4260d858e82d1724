"""Files -> invocations: which reader a file gets, and what could not be read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.invocation import Invocation, build
from kvbudget.gate.nodes import Malformed
from kvbudget.gate.program import Reader
from kvbudget.gate.shell_lex import UnclosedQuote

if TYPE_CHECKING:
    from kvbudget.gate.draft import Draft, Pin
    from kvbudget.gate.source import Text
    from kvbudget.gate.tree import Tree

MAX_RECURSION = 3


@dataclass
class Problem:
    """A file that cannot be read (exit 2)."""

    file: str
    line: int
    message: str


@dataclass
class Context:
    """One file on its way through its reader."""

    path: str
    text: Text
    tree: Tree
    outside: dict[str, str] = field(default_factory=dict)
    drafts: list[Draft] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    depth: int = 0

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    def reader(self) -> Reader:
        """A shell reader whose `source` and `--env-file` see the tree."""

        def source(path: str) -> Text | None:
            found = self.tree.neighbour(path, self.path)
            return found[1] if found else None

        return Reader(source)

    def absorb(self, reader: Reader) -> None:
        """Take pins and files that a script writes."""
        self.pins.extend(reader.pins)
        if self.depth >= MAX_RECURSION:
            return
        for target, body in reader.files:
            inner = Context(target, body, self.tree, self.outside, depth=self.depth + 1)
            inner.path = target
            try:
                dispatch(inner)
            except (Malformed, UnclosedQuote):
                continue
            self.drafts.extend(inner.drafts)
            self.pins.extend(inner.pins)
        for body in reader.manifests:
            from kvbudget.gate.readers import manifests

            inner = Context(self.path, body, self.tree, self.outside, depth=self.depth + 1)
            try:
                manifests.read(inner)
            except (Malformed, UnclosedQuote):
                continue
            self.drafts.extend(inner.drafts)


@dataclass
class Result:
    """All invocations of a tree, and the files that are broken."""

    invocations: list[Invocation] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    texts: dict[str, Text] = field(default_factory=dict)


def find(tree: Tree, outside: dict[str, str] | None = None) -> Result:
    """Read every file of the tree."""
    result = Result()
    result.notes.extend(tree.notes)
    found: list[tuple[str, Draft]] = []
    for item in tree.files:
        text, note = tree.load(item)
        if note:
            result.notes.append(note)
        if text is None:
            continue
        result.texts[item.path] = text
        context = Context(item.path, text, tree, outside or {})
        broken = _read(context)
        if broken is not None and (item.named or item.says_engine):
            result.problems.append(broken)
        elif broken is not None:
            result.notes.append(f"{item.path}:{broken.line}: {broken.message}, skipped")
        for draft in context.drafts:
            if draft.pins is None:
                draft.pins = context.pins
            found.append((item.path, draft))
    seen: set[tuple[str, int, str]] = set()

    def config(path: str, base: str) -> tuple[str, Text] | None:
        near = tree.neighbour(path, base)
        if near is not None:
            tree.consumed.add(near[0])
        return near

    built: list[tuple[Invocation, Draft]] = []
    for path, draft in found:
        key = (path, draft.line, draft.engine)
        if key in seen and draft.words and draft.line == draft.image_line:
            # an image shared through an anchor: the process stands where its arguments do
            draft.line = draft.words[0].line
            key = (path, draft.line, draft.engine)
        if key in seen:
            continue
        seen.add(key)
        built.append((build(draft, path, config), draft))
    result.invocations = [
        inv for inv, draft in built if not (draft.config_base and path_used(tree, inv.file))
    ]
    result.invocations.sort(key=lambda inv: (inv.file, inv.line, inv.engine.name))
    return result


def _read(context: Context) -> Problem | None:
    """Dispatch one file; what keeps it from being read never stops the others."""
    try:
        dispatch(context)
    except Malformed as exc:
        return Problem(context.path, exc.line, f"cannot read as {exc.language}: {exc.detail}")
    except UnclosedQuote as exc:
        return Problem(context.path, exc.line, f"cannot read as shell: unclosed {exc.what}")
    except RecursionError:
        return Problem(context.path, 1, "nested too deeply")
    except Exception as exc:  # a fault of a reader, kept to its file
        said = f"{type(exc).__name__}: {exc}"
        return Problem(context.path, 1, f"cannot be read, a fault of kvbudget ({said})")
    return None


def path_used(tree: Tree, path: str) -> bool:
    """True for a config file that another file refers to."""
    return path in tree.consumed


def dispatch(context: Context) -> None:
    """Choose the reader by name, extension or shebang."""
    name = context.name
    low = name.lower()
    extension = low.rsplit(".", 1)[-1] if "." in low else ""
    from kvbudget.gate.readers import scripts

    if low.startswith(("dockerfile", "containerfile")) or extension in (
        "dockerfile",
        "containerfile",
    ):
        from kvbudget.gate.readers import dockerfile

        dockerfile.read(context)
    elif low in ("makefile", "gnumakefile") or extension == "mk":
        scripts.read_make(context)
    elif low in ("justfile", ".justfile"):
        scripts.read_just(context)
    elif low == "serving.properties":
        from kvbudget.gate.readers import configs

        configs.read_properties(context)
    elif extension in ("service", "container"):
        from kvbudget.gate.readers import units

        units.read(context)
    elif extension in ("hcl", "tf", "nomad"):
        from kvbudget.gate.readers import hcl

        hcl.read(context)
    elif extension in ("yaml", "yml"):
        from kvbudget.gate.readers import manifests

        manifests.read(context)
    elif extension == "json":
        from kvbudget.gate.readers import manifests

        manifests.read_json(context)
    elif extension == "ipynb":
        from kvbudget.gate.readers import notebook

        notebook.read(context)
    elif extension == "py":
        from kvbudget.gate.readers import python

        python.read(context)
    elif extension == "ps1":
        scripts.read_powershell(context)
    elif extension in ("sh", "bash", "zsh") or extension in ("sbatch", "slurm"):
        scripts.read_shell(context)
    elif extension in ("j2", "tpl"):
        _template(context, low)
    elif extension not in ("env", "toml", "md", "txt") and context.text.s.startswith("#!"):
        _shebang(context)
    elif extension == "md":
        scripts.read_markdown(context)


def _template(context: Context, low: str) -> None:
    inner = low.removesuffix(".j2").removesuffix(".tpl")
    if inner.endswith((".yaml", ".yml", ".service", ".sh")) and low.endswith(".j2"):
        from kvbudget.gate.readers.ansible import without_jinja

        body = context.text
        if not inner.endswith((".yaml", ".yml")):
            body = without_jinja(body)
        nested = Context(inner, body, context.tree, context.outside, depth=context.depth + 1)
        nested.path = str(PurePosixPath(context.path).with_name(inner))
        dispatch(nested)
        context.drafts, context.pins = nested.drafts, nested.pins


def _shebang(context: Context) -> None:
    from kvbudget.gate.readers import python, scripts

    first = context.text.s.split("\n", 1)[0]
    if re.search(r"\b(ba|z|da|k)?sh\b", first):
        scripts.read_shell(context)
    elif "python" in first:
        python.read(context)
