"""Do the lines that formula files cite still stand in a checkout of the engine?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvbudget.errors import InputError
from kvbudget.formula.registry import load_engine
from kvbudget.formula.versions import version_key

if TYPE_CHECKING:
    from pathlib import Path

    from kvbudget.formula.program import StepSpec

Verdict = Literal["stands", "moved", "anchor gone", "file gone"]


@dataclass(frozen=True, slots=True)
class Drift:
    """One cited source looked up in a checkout.

    line: where the anchor was found, from 1: inside the cited lines if it is there, else the first.
    cited: the lines on record, of the release the file was written from.
    """

    file: str
    step: str
    path: str
    anchor: str | None
    verdict: Verdict
    line: int | None = None
    cited: str | None = None


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
            out.append(_look(program.file, step, sources[step.source.path], checkout))
    return out


def _text(checkout: Path, path: str) -> str | None:
    """A cited file of a checkout, or of the folder a wheel of the engine is installed in."""
    file = checkout / path
    if not file.is_file():
        file = checkout / path.partition("/")[2]
    try:
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None
    except OSError:
        return None


def _look(file: str, step: StepSpec, text: str | None, checkout: Path) -> Drift:
    path, anchor, cited = step.source.path, step.source.anchor, step.source.lines
    if text is not None and (anchor is None or anchor in text):
        line = None if anchor is None else _line(text, anchor, cited)
        return Drift(file, step.name, path, anchor, "stands", line, cited)
    if anchor is not None:
        elsewhere = _find(checkout, path, anchor)
        if elsewhere is not None:
            return Drift(file, step.name, elsewhere[0], anchor, "moved", elsewhere[1], cited)
    gone: Verdict = "file gone" if text is None else "anchor gone"
    return Drift(file, step.name, path, anchor, gone, None, cited)


def _line(text: str, anchor: str, cited: str | None) -> int:
    """The occurrence inside the cited lines, else the first."""
    found = [number for number, line in enumerate(text.split("\n"), 1) if anchor in line]
    inside = (n for n in found if cited is not None and _within(n, cited))
    return next(inside, found[0] if found else text[: text.index(anchor)].count("\n") + 1)


def _within(line: int, cited: str) -> bool:
    ends = [int(part) for part in cited.split("-") if part.strip().isdigit()]
    return bool(ends) and min(ends) <= line <= max(ends)


def _find(checkout: Path, path: str, anchor: str) -> tuple[str, int] | None:
    """The anchor in a file of the same name elsewhere, or anywhere below the cited top folder."""
    top = checkout / path.split("/", 1)[0]
    if not top.is_dir():
        top = checkout / path.split("/", 2)[1]
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
