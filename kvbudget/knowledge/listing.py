"""Everything the data holds, a row each: lines, failures and formula files."""

from __future__ import annotations

from kvbudget.knowledge.patterns import load_patterns
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_dir


def entry_names() -> list[str]:
    """Every id that `knowledge show` takes."""
    return [row[1] for row in rows()]


def rows() -> list[tuple[str, ...]]:
    """(kind, id, versions, meaning) of every entry."""
    found: list[tuple[str, ...]] = [
        (
            "failure" if p.is_failure else "line",
            p.id,
            p.entry.versions,
            " ".join(p.entry.doc.split()),
        )
        for p in load_patterns().patterns
    ]
    root = knowledge_dir("formulas")
    for path in sorted(root.rglob("*.yaml")):
        raw = load_shipped(path)
        if isinstance(raw, dict) and raw.get("schema") == "kvbudget.formula/1":
            name = path.relative_to(root).with_suffix("").as_posix()
            doc = " ".join(str(raw.get("doc", "")).split())
            found.append(("formula", name, str(raw.get("versions", "")), doc))
    return found
