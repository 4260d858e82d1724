"""A ConfigMap, and a file of one as a container sees it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kvbudget.gate.source import HOLE, Text


@dataclass
class ConfigMap:
    """One ConfigMap: of a manifest, of a chart's template or made by a kustomization."""

    name: str
    file: str
    chart: str | None = None
    data: dict[str, Text] = field(default_factory=dict)

    def goes_by(self, name: str, chart: str | None) -> bool:
        """True for the name; one with an unknown part (a release's) counts within its chart."""
        if self.name != name or not name:
            return False
        return HOLE not in name or (
            chart == self.chart is not None and name.strip(HOLE + "-") != ""
        )

    def key_of(self, key: str) -> str:
        """What a file of this map is called where it is marked as read by its user."""
        return f"{self.file}#{self.name}/{key}"


@dataclass
class Mounted:
    """A file of a ConfigMap as a container sees it; `mark` tells that somebody refers to it."""

    text: Text
    file: str
    mark: str


def named(files: dict[str, Mounted], words: list[Text]) -> list[Mounted]:
    """Those of the files that a command line names."""
    return [
        file
        for path, file in files.items()
        if any(re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", word.s) for word in words)
    ]
