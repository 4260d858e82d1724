"""oom-triage beside a peer on a folder of labelled logs: `triage_accuracy.py CASES [PEER_PYTHON]`.

CASES holds NAME/{input.log,expect.json} (cause, also_acceptable, remedy_direction). PEER_PYTHON is the
interpreter of an environment with inferguard 0.7.4; each log is given to it as d/slurm-1.err.
A peer class counts as right when its family is the label's (its one device class: any vram cause).
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from kvbudget.knowledge.patterns import load_patterns
from kvbudget.logs.collect import read_log
from kvbudget.triage.report import document
from kvbudget.triage.verdict import judge

PEER = """
import json, sys
from inferguard.cli import app
from typer.testing import CliRunner
from pathlib import Path
run = CliRunner()
for folder in sys.argv[1:]:
    out = Path(folder, "out")
    run.invoke(app, ["classify-failures", "--job-dir", folder + "/d", "--output-dir", str(out), "--json-only"])
    found = [json.loads(p.read_text()) for p in out.glob("*.json")]
    print(json.dumps([folder, found[0].get("top_class") if found else None]))
"""


def main(cases: Path, peer: str | None) -> int:
    patterns = load_patterns()
    rows = []
    for folder in sorted(p for p in cases.iterdir() if (p / "expect.json").is_file()):
        expect = json.loads((folder / "expect.json").read_text())
        data = (folder / "input.log").read_bytes()
        reading = read_log(io.BytesIO(data), patterns, name="-")
        rows.append((folder.name, expect, data, document(reading, judge(reading))))
    failures = [r for r in rows if not r[1]["cause"].startswith("none.")]
    healthy = [r for r in rows if r[1]["cause"].startswith("none.")]

    def right(expect: dict, cause: str) -> bool:  # type: ignore[type-arg]
        return cause in (expect["cause"], *expect["also_acceptable"])

    named = [r for r in failures if not r[3]["verdict"]["cause"].startswith(("none.", "unknown."))]
    good = [r for r in failures if right(r[1], r[3]["verdict"]["cause"])]
    numbers = [r for r in failures if any(f["name"].startswith("oom.") for f in r[3]["facts"])]
    alarms = [r for r in healthy if not right(r[1], r[3]["verdict"]["cause"])]
    turned = [r for r in failures if any(s["direction"] for s in r[3]["verdict"]["remedies"])]
    print("| | kvbudget oom-triage | inferguard 0.7.4 classify-failures |\n|---|---:|---:|")
    theirs = peer_classes(peer, rows) if peer else {}
    hit = [r for r in failures if theirs.get(r[0])]
    same = [
        r for r in hit
        if ("oom_hbm" in theirs[r[0]]) == r[1]["cause"].startswith("vram.") and "oom_hbm" in theirs[r[0]]
    ]  # fmt: skip
    false = [r for r in healthy if theirs.get(r[0])]

    def line(label: str, ours: int, other: int | str, of: int) -> None:
        print(
            f"| {label} | {ours}/{of} | {other if not peer or isinstance(other, str) else f'{other}/{of}'} |"
        )

    n = len(failures)
    line("failures given a class", len(named), len(hit) if peer else "-", n)
    line(
        "class right (theirs: out-of-memory of the device, and it was)",
        len(good),
        len(same) if peer else "-",
        n,
    )
    line("allocator figures extracted", len(numbers), 0 if peer else "-", n)
    line("a knob with a direction", len(turned), 0 if peer else "-", n)
    line("false alarms on healthy logs", len(alarms), len(false) if peer else "-", len(healthy))
    return 0


def peer_classes(python: str, rows: list) -> dict[str, str]:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as tmp:
        folders = {}
        for name, _, data, _ in rows:
            place = Path(tmp, name, "d")
            place.mkdir(parents=True)
            (place / "slurm-1.err").write_bytes(data)
            folders[str(place.parent)] = name
        done = subprocess.run(
            [python, "-c", PEER, *folders], capture_output=True, text=True, check=True
        )
        pairs = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("[")]
        return {folders[f]: c for f, c in pairs if c and c != "not_enough_evidence"}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
