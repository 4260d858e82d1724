"""Files -> invocations, and what could not be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.gate.context import Context
from kvbudget.gate.dispatch import dispatch
from kvbudget.gate.invocation import Invocation, build
from kvbudget.gate.nodes import Malformed
from kvbudget.gate.readers.manifests import read_documents
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.source import file_of
from kvbudget.gate.tree import Found

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.gate.draft import Draft, Overlay
    from kvbudget.gate.source import Text
    from kvbudget.gate.tree import Tree

Key = tuple[str, int, str]
"""File, line and engine of an invocation: no two have the same."""


@dataclass
class Problem:
    """A file that cannot be read (exit 2)."""

    file: str
    line: int
    message: str


@dataclass
class Result:
    """All invocations of a tree, and the files that are broken."""

    invocations: list[Invocation] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    texts: dict[str, Text] = field(default_factory=dict)


def find(tree: Tree, outside: dict[str, str] | None = None) -> Result:
    """Read every file of the tree; `outside` are variables of the caller's environment."""
    result = Result()
    result.notes.extend(tree.notes)
    found: list[tuple[str, Draft]] = []
    overlays: list[Overlay] = []
    for item in tree.files:
        text, note = tree.load(item)
        if note:
            result.notes.append(note)
        if text is None:
            continue
        result.texts[item.path] = text
        context = Context(item.path, text, tree, dispatch, read_documents, outside or {})
        _guard(result, item, lambda context=context: dispatch(context))  # type: ignore[misc]
        overlays += context.overlays
        for draft in context.drafts:
            if draft.pins is None:
                draft.pins = context.pins
            found.append((item.path, draft))
    found = [(path, draft) for path, draft in found if draft.config_base not in tree.consumed]
    found = _distinct(_laid_over(found, overlays))
    named = {item.path: item for item in tree.files}
    config = _config_reader(tree)
    for path, draft in found:

        def add(path: str = path, draft: Draft = draft) -> None:
            result.invocations.append(build(draft, path, config))

        _guard(result, named.get(path) or Found(path, tree.root / path, False, True), add)
    result.invocations = [
        inv for inv in result.invocations if inv.stands_alone not in tree.consumed
    ]
    result.invocations.sort(key=lambda inv: (inv.file, inv.line, inv.engine.name))
    return result


def _guard(result: Result, item: Found, work: Callable[[], None]) -> None:
    """Do `work` on one file; what keeps it from being read never stops the others."""
    try:
        work()
        return
    except Malformed as exc:
        broken = Problem(item.path, exc.line, f"cannot read as {exc.language}: {exc.detail}")
    except UnclosedQuote as exc:
        broken = Problem(item.path, exc.line, f"cannot read as shell: unclosed {exc.what}")
    except RecursionError:
        broken = Problem(item.path, 1, "nested too deeply")
    except Exception as exc:  # a fault of a reader, kept to its file
        said = f"a fault of kvbudget, please report it ({type(exc).__name__}: {exc})"
        broken = Problem(item.path, 1, f"could not be read: {said}")
    if item.named or item.says_engine:
        result.problems.append(broken)
    else:
        result.notes.append(f"{item.path}:{broken.line}: {broken.message}, skipped")


def _config_reader(tree: Tree) -> Callable[[str, str], tuple[str, Text] | None]:
    def config(path: str, base: str) -> tuple[str, Text] | None:
        near = tree.neighbour(path, base)
        if near is not None:
            tree.consumed.add(near[0])
        return near

    return config


def _key(path: str, draft: Draft) -> Key:
    return file_of(draft.line) or path, int(draft.line), draft.engine


def _laid_over(found: list[tuple[str, Draft]], overlays: list[Overlay]) -> list[tuple[str, Draft]]:
    """A base under one overlay is told as deployed; under several, each overlay stands alone."""
    users: dict[Key, int] = {}
    for overlay in overlays:
        for key in overlay.bases:
            users[key] = users.get(key, 0) + 1
    patches = {path for overlay in overlays for path in overlay.patches}
    single = {key for key, count in users.items() if count == 1}
    out = [
        (path, draft)
        for path, draft in found
        if path not in patches and _key(path, draft) not in single
    ]
    for overlay in overlays:
        for draft in overlay.drafts:
            if not overlay.bases <= single:
                draft.line = next(
                    (line for line in _lines(draft) if file_of(line) in overlay.files), overlay.line
                )
            out.append((file_of(draft.line) or overlay.path, draft))
    return out


def _lines(draft: Draft) -> list[int]:
    return [*(word.line for word in draft.words), *(draft.image.lines if draft.image else [])]


def _distinct(found: list[tuple[str, Draft]]) -> list[tuple[str, Draft]]:
    """Each process once, however often its text was met."""
    seen: dict[Key, set[tuple[str, ...]]] = {}
    out: list[tuple[str, Draft]] = []
    for path, draft in found:
        key = _key(path, draft)
        said = tuple(word.s for word in draft.words)
        if key in seen and (draft.line == draft.image_line or _another(draft, said, seen[key])):
            # an image shared through an anchor, or a loop that writes several processes:
            # this one stands where its own arguments do
            for word in draft.words:
                draft.line = word.line
                if (key := _key(path, draft)) not in seen:
                    break
        if key not in seen:
            seen[key] = set()
            out.append((key[0], draft))
        seen[key].add(said)
    return out


def _another(draft: Draft, said: tuple[str, ...], before: set[tuple[str, ...]]) -> bool:
    """True for words that are known and were not met before: not the same text read twice."""
    return said not in before and all(word.known for word in draft.words)
