"""Files of data that are wrong, one fault each: `knowledge check` names the fault and its place.

What it says of a file stands at the file's end, as `# error: FILE:LINE:COL: message`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvbudget.cli.app import app

HERE = Path(__file__).parent
PLACES = {"lines": "logparsers", "formulas": "formulas/house"}
FILES = sorted(file for kind in PLACES for file in (HERE / kind).glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_the_fault_is_named_with_its_place(file: Path, tmp_path: Path):
    place = tmp_path / PLACES[file.parent.name]
    place.mkdir(parents=True)
    shutil.copy(file, place)
    wanted = [
        line.removeprefix("# ")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith(("# error: ", "# warning: "))
    ]
    run = CliRunner().invoke(app, ["knowledge", "check", str(tmp_path), "--format", "json"])
    report = json.loads(run.stdout)
    found = [
        f"{level}: {text}".replace(f"{place}/", "").replace(f"house/{file.name}", file.name)
        for level in ("error", "warning")
        for text in report[f"{level}s"]
    ]
    assert wanted
    assert found == wanted
    assert run.exit_code == (1 if report["errors"] else 0)


def test_every_fault_has_its_own_message():
    texts = [
        file.read_text(encoding="utf-8").rsplit("# ", 1)[1].split(": ", 2)[2] for file in FILES
    ]
    assert len({text.replace("'12.51 GiB'", "") for text in texts}) > 0.9 * len(texts)
