"""The report's page in a real browser: charts drawn, hover and sorting work, nothing fails."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from kvbudget.cli.app import app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

HEAD = """<script>
const failures = [];
addEventListener("error", e => failures.push(e.message));
</script>"""

DRIVER = """<script>
const seen = {failures, charts: {}, tips: {}, sorted: {}};
const tipBox = document.getElementById("tip");
function hoverOver(node, share) {
  const box = node.getBoundingClientRect();
  node.dispatchEvent(new MouseEvent("mousemove",
    {clientX: box.left + share * box.width, clientY: box.top + box.height / 2, bubbles: true}));
  const shown = tipBox.style.display === "none" ? null : tipBox.textContent;
  node.dispatchEvent(new MouseEvent("mouseleave", {}));
  return [shown, tipBox.style.display];
}
for (const id of ["curve", "gaps", "traffic", "policies"]) {
  const all = document.querySelectorAll("#" + id + " svg *");
  seen.charts[id] = all.length;
  const pads = document.querySelectorAll("#" + id + " svg rect:not([pointer-events])");
  seen.tips[id] = [0.02, 0.98].map(share => hoverOver(pads[pads.length - 1], share));
}
const table = document.querySelectorAll("table")[1];
const column = k => [...table.tBodies[0].rows].map(row => row.cells[k].textContent);
seen.sorted.before = column(1);
const heading = table.tHead.rows[0].cells[1];
heading.click(); seen.sorted.once = column(1);
heading.click(); seen.sorted.twice = column(1);
table.tHead.rows[0].cells[0].click(); seen.sorted.names = column(0);
const out = document.createElement("pre");
out.id = "seen"; out.textContent = JSON.stringify(seen);
document.body.appendChild(out);
</script>"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    trace = folder / "talk.jsonl"
    with trace.open("w") as out:
        for k in range(90):
            ids = [0, *range(100 * (k % 9) + 1, 100 * (k % 9) + 3 + 2 * (k // 9))]
            row = {"timestamp": 11000 * k, "input_length": 16 * len(ids), "hash_ids": ids}
            out.write(json.dumps(row) + "\n")
    page = folder / "report.html"
    args = ["residency", "report", str(trace), "--l1", "40blk", "--l2", "90blk"]
    args += ["--block-tokens", "16", "--bytes-per-token", "131072", "--no-cache"]
    done = CliRunner().invoke(app, [*args, "--format", "html", "-o", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text().replace("<head>", "<head>" + HEAD, 1)
    page.write_text(text.replace("</body>", DRIVER + "</body>"))
    shown = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder / 'profile'}", "--window-size=1200,2000",
            "--virtual-time-budget=2000", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    found = re.search(r'<pre id="seen">(.*?)</pre>', shown.stdout, re.DOTALL)
    assert found is not None, shown.stdout[-2000:] + shown.stderr[-2000:]
    return json.loads(html.unescape(found.group(1)))


pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def test_every_chart_is_drawn_and_no_script_fails(seen):
    assert seen["failures"] == []
    assert all(marks > 10 for marks in seen["charts"].values()), seen["charts"]


@pytest.mark.parametrize(
    ("chart", "words"),
    [("curve", "block hits"), ("gaps", "reuses"), ("traffic", "minute"), ("policies", "blocks")],
)
def test_hovering_tells_the_figures_and_leaving_hides_them(seen, chart, words):
    left, right = seen["tips"][chart]
    assert words in left[0]
    assert words in right[0]
    assert left[1] == right[1] == "none"


def test_the_tip_follows_the_pointer(seen):
    first, last = (int(shown.split(" ")[0].replace(",", "")) for shown, _ in seen["tips"]["curve"])
    assert first < last


def test_a_heading_sorts_its_column_both_ways(seen):
    numbers = {
        key: [int(cell.replace(",", "")) for cell in seen["sorted"][key]]
        for key in ("before", "once", "twice")
    }
    assert numbers["once"] == sorted(numbers["before"], reverse=True)
    assert numbers["twice"] == sorted(numbers["before"])
    names = seen["sorted"]["names"]
    assert names == sorted(names, reverse=True)
