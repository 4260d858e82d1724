"""Do the lines that formula files cite still stand in a checkout of the engine?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvbudget.errors import InputError
from kvbudget.formula.registry import load_engine
from kvbudget.formula.versions import version_key

if TYPE_CHECKING:
    from pathlib import Path

Verdict = Literal["stands", "moved", "anchor gone", "file gone"]


@dataclass(frozen=True, slots=True)
class Drift:
    """One cited source looked up in a checkout. `line`: where the anchor was found, from 1."""

    file: str
    step: str
    path: str
    anchor: str | None
    verdict: Verdict
    line: int | None = None


def drift(engine: str, checkout: Path, version: str | None = None) -> list[Drift]:
    """Every cited source of the newest files (or of those that hold for `version`).

    `moved`: the anchor stands in another file than the cited one. Raises InputError when
    `checkout` is not a folder.
    """
    if not checkout.is_dir():
        raise InputError(f"{checkout} is not a folder", "give the root of a checkout")
    index = load_engine(engine)
    release = version or index.latest
    version_key(release)
    texts = index.selectors(release, {})
    sources: dict[str, str | None] = {}
    out = []
    for program in index.programs(release, texts):
        for step in program.steps:
            if step.source.path not in sources:
                sources[step.source.path] = _text(checkout, step.source.path)
            out.append(_look(program.file, step.name, step.source.path, step.source.anchor,
                             sources[step.source.path], checkout))  # fmt: skip
    return out


def _text(checkout: Path, path: str) -> str | None:
    file = checkout / path
    try:
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None
    except OSError:
        return None


def _look(
    file: str, step: str, path: str, anchor: str | None, text: str | None, checkout: Path
) -> Drift:
    if text is not None and (anchor is None or anchor in text):
        line = None if anchor is None else text[: text.index(anchor)].count("\n") + 1
        return Drift(file, step, path, anchor, "stands", line)
    if anchor is not None:
        elsewhere = _find(checkout, path, anchor)
        if elsewhere is not None:
            return Drift(file, step, elsewhere[0], anchor, "moved", elsewhere[1])
    return Drift(file, step, path, anchor, "file gone" if text is None else "anchor gone")


def _find(checkout: Path, path: str, anchor: str) -> tuple[str, int] | None:
    """The anchor in a file of the same name elsewhere, or anywhere below the cited top folder."""
    top = checkout / path.split("/", 1)[0]
    files = sorted(top.rglob("*.py"), key=lambda f: f.name != path.rsplit("/", 1)[-1])
    for candidate in files:
        try:
            text = candidate.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if anchor in text:
            line = text[: text.index(anchor)].count("\n") + 1
            return candidate.relative_to(checkout).as_posix(), line
    return None
