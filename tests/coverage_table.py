"""Branch coverage per package, from the data that `make coverage` gathered."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path

from coverage import Coverage


def main() -> None:
    coverage = Coverage()
    coverage.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        coverage.json_report(outfile=str(report))
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for file, content in sorted(files.items()):
        parts = Path(file).parts
        package = ".".join(parts[parts.index("kvbudget") :][:2]).removesuffix(".py")
        numbers = content["summary"]
        for key in (package if len(parts) > 2 else "kvbudget", "all"):
            row = totals[key]
            row[0] += numbers["num_statements"]
            row[1] += numbers["missing_lines"]
            row[2] += numbers["num_branches"]
            row[3] += numbers["missing_branches"]
    print(f"{'package':24} {'statements':>10} {'run':>7} {'branches':>9} {'taken':>7}")
    for name, (lines, missed, branches, untaken) in totals.items():
        run = 100 * (lines - missed) / max(lines, 1)
        taken = 100 * (branches - untaken) / max(branches, 1)
        print(f"{name:24} {lines:10} {run:6.1f}% {branches:9} {taken:6.1f}%")


if __name__ == "__main__":
    main()
