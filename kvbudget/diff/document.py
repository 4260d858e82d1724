"""A difference as the JSON object users' scripts read (schema kvbudget.diff/1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.derive.document import SCHEMA as DERIVE_SCHEMA
from kvbudget.derive.document import document
from kvbudget.diff.compare import changed_flags, compare
from kvbudget.diff.sides import from_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.derive.assemble import Derived
    from kvbudget.diff.movement import Movement
    from kvbudget.diff.sides import Side


def diff_document(a: Side, b: Side) -> dict[str, Any]:
    """The JSON object of `kvbudget diff`."""
    changed = changed_flags(a, b)
    return {
        "schema": "kvbudget.diff/1",
        "a": {"label": a.label, "engine": a.engine, "engine_version": a.version},
        "b": {"label": b.label, "engine": b.engine, "engine_version": b.version},
        "flags": [{"name": n, "a": a.flags[n], "b": b.flags[n]} for n in changed],
        "terms": [movement_object(row) for row in compare(a, b)],
    }


def movement_object(row: Movement) -> dict[str, Any]:
    """One row as JSON."""
    return {"name": row.name, "a": row.a, "b": row.b, "delta": row.delta, "unit": row.unit,
            "cause": row.cause, "explanation": row.explanation}  # fmt: skip


def both(results: Sequence[Derived]) -> dict[str, Any]:
    """The JSON of `derive --engine both`: two objects and the gap between their pools."""
    documents = [document(result) for result in results]
    sides = [from_document(d, str(d["engine"])) for d in documents]
    rows = [movement_object(row) for row in compare(sides[0], sides[1])]
    return {"schema": DERIVE_SCHEMA, "engine": "both", "engines": documents, "gap": rows}
