"""One file on its way through its reader: what the reader sees and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.nodes import Malformed
from kvbudget.gate.program import Reader
from kvbudget.gate.shell_lex import UnclosedQuote

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.gate.draft import Draft, Overlay, Pin
    from kvbudget.gate.nodes import Node
    from kvbudget.gate.source import Text
    from kvbudget.gate.tree import Tree

MAX_RECURSION = 3


@dataclass
class Context:
    """A file, the tree around it, and the drafts found in it.

    `dispatch` reads a file inside the file (a here-document, a ConfigMap) as one of its name,
    `documents` parsed YAML inside it: readers meet each other here, not by importing each other.
    """

    path: str
    text: Text
    tree: Tree
    dispatch: Callable[[Context], None]
    documents: Callable[[Context, list[Node], bool], None]
    outside: dict[str, str] = field(default_factory=dict)
    env: dict[str, Text] = field(default_factory=dict)
    """Variables that the process of this file is given."""
    drafts: list[Draft] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    overlays: list[Overlay] = field(default_factory=list)
    objects: list[Node] = field(default_factory=list)
    """Kubernetes objects beside the one that is read."""
    depth: int = 0

    @property
    def name(self) -> str:
        """Last part of the path."""
        return PurePosixPath(self.path).name

    def inner(self, path: str, text: Text) -> Context:
        """A file inside this one."""
        return Context(
            path, text, self.tree, self.dispatch, self.documents, self.outside,
            depth=self.depth + 1,
        )  # fmt: skip

    def read(self, docs: list[Node], *, embedded: bool = False) -> None:
        """Documents inside this file; `embedded` ones are no values of a chart."""
        self.documents(self, docs, embedded)

    def reader(self) -> Reader:
        """A shell reader whose `source` and `--env-file` see the tree."""

        def source(path: str) -> Text | None:
            found = self.tree.neighbour(path, self.path)
            return found[1] if found else None

        return Reader(source, self._code)

    def _code(self, text: Text, env: dict[str, Text]) -> list[Draft]:
        """Drafts of Python text that a command line holds; broken text holds none."""
        if self.depth >= MAX_RECURSION:
            return []
        inner = self.inner("inline.py", text)
        inner.env = env
        try:
            self.dispatch(inner)
        except (Malformed, UnclosedQuote):
            return []
        self.pins.extend(inner.pins)
        for draft in inner.drafts:
            draft.host.share_unit = f"{self.path}>{text.line}"  # it ends before the next one starts
        return inner.drafts

    def absorb(self, reader: Reader) -> None:
        """Take the pins, and the files and manifests that a script writes."""
        self.pins.extend(reader.pins)
        if self.depth >= MAX_RECURSION:
            return
        written = [*reader.files, *(("manifest.yaml", body) for body in reader.manifests)]
        for target, body in written:
            inner = self.inner(target, body)
            try:
                self.dispatch(inner)
            except (Malformed, UnclosedQuote):
                continue
            for draft in inner.drafts:
                draft.host.share_unit = f"{self.path}>{draft.host.share_unit}"
            self.drafts.extend(inner.drafts)
            self.pins.extend(inner.pins)
