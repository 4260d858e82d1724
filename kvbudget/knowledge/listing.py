"""Everything the data holds, a row each: lines, failures and formula files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.knowledge.patterns import load_patterns
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_dir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def entry_names() -> list[str]:
    """Every id that `knowledge show` takes."""
    return [row[1] for row in rows()]


def rows(overlays: Sequence[Path] = ()) -> list[tuple[str, ...]]:
    """(kind, id, versions, meaning) of every entry; `overlays` add patterns of a user's folder."""
    found: list[tuple[str, ...]] = [
        (
            "failure" if p.is_failure else "line",
            p.id,
            p.entry.versions,
            " ".join(p.entry.doc.split()),
        )
        for p in load_patterns(tuple(overlays)).patterns
    ]
    root = knowledge_dir("formulas")
    for path in sorted(root.rglob("*.yaml")):
        raw = load_shipped(path)
        if isinstance(raw, dict) and raw.get("schema") == "kvbudget.formula/1":
            name = path.relative_to(root).with_suffix("").as_posix()
            doc = " ".join(str(raw.get("doc", "")).split())
            found.append(("formula", name, str(raw.get("versions", "")), doc))
    return found
