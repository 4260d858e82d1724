"""`kvbudget knowledge`: what it lists, and what its check finds wrong, with its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kvbudget.cli.app import app
from kvbudget.knowledge.patterns import expand, pattern_files
from kvbudget.logs.selftest import _nested, check_patterns, longest_prefix

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
schema: kvbudget.logparsers/1
engine: house
lines:
  - id: house.pool.size
    doc: size of the pool
    literals: ["pool holds"]
    pattern: 'pool holds {num:n} GiB'
    yields:
      kv_cache_memory: {group: n, unit: GiB}
    samples:
      - {text: "pool holds 12.50 GiB", expect: {kv_cache_memory: "12.50"}}
    rejects: ["pool holds water"]
"""


def _problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "house.yaml"
    file.write_text(text, encoding="utf-8")
    return [str(problem).replace(f"{file}:", "") for problem in check_patterns([file]).problems]


def test_a_right_file_has_no_problem(tmp_path: Path):
    assert _problems(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "where", "words"),
    [
        (
            '12.50 GiB", expect',
            '12.50 GB", expect',
            "11:",
            "as far as it does: 'pool holds 12.50 G",
        ),
        ('"12.50"}', '"12.51"}', "11:", "expected '12.51'"),
        ("pool holds water", "pool holds 1 GiB", "12:", "must not match"),
        ("kv_cache_memory: {group", "kv_memory: {group", "9:", "no fact of kvbudget/facts.py"),
        ("group: n", "group: m", "9:", "no group 'm'"),
        ("{num:n} GiB'", "(?:\\d*)*{num:n} GiB'", "7:", "repeat inside a repeat"),
        ("doc: size", "dok: size", "4:", "dok"),
        ('["pool holds"]', '["tank holds"]', "11:", "none of its literals"),
        ("    doc: size", "    versions: new\n    doc: size", "5:", "not a version range"),
    ],
)
def test_each_fault_is_found_with_its_line(
    tmp_path: Path, old: str, new: str, where: str, words: str
):
    assert old in GOOD
    found = _problems(tmp_path, GOOD.replace(old, new))
    assert any(text.startswith(where) and words in text for text in found), found


def test_an_id_stands_once(tmp_path: Path):
    entry = GOOD.split("lines:\n", 1)[1]
    assert any("stands already" in text for text in _problems(tmp_path, GOOD + entry))


def test_shipped_patterns_hold_what_they_promise():
    outcome = check_patterns(pattern_files(), timed=False)
    assert outcome.patterns > 100
    assert [str(p) for p in outcome.problems if p.level == "error"] == []


def test_nested_repeats_are_told_apart():
    assert _nested(r"(?:a+)+b")
    assert _nested(r"(?:x|y+)*z")
    assert not _nested(r"(?:\w+\.)*Error")


def test_longest_prefix_shows_where_a_pattern_stops():
    assert longest_prefix("took {num:n} GiB", "took 3.5 MiB") == "took 3.5 "


def test_placeholders_are_expanded_in_one_place():
    assert "(?P<n>" in expand("{int:n}")
    assert "{" not in expand("{hex}")


def test_commands(tmp_path: Path):
    run = CliRunner().invoke
    listed = run(app, ["knowledge", "list", "kv.available", "--format", "json"])
    assert "vllm.kv.available" in [row["id"] for row in json.loads(listed.stdout)["entries"]]
    shown = run(app, ["knowledge", "show", "vllm.kv.available"])
    assert shown.exit_code == 0
    assert "pattern: " in shown.stdout
    (tmp_path / "a.yaml").write_text(GOOD, encoding="utf-8")
    assert run(app, ["knowledge", "check", str(tmp_path)]).exit_code == 0
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "b.yaml").write_text(GOOD.replace("water", "1 GiB"), encoding="utf-8")
    assert run(app, ["knowledge", "check", str(wrong)]).exit_code == 1


def test_one_folder_is_laid_over_lines_and_formulas_alike(tmp_path: Path):
    """derive --from-log reads a figure that only the user's own pattern knows."""
    (tmp_path / "own" / "logparsers" / "house").mkdir(parents=True)
    (tmp_path / "own" / "logparsers" / "house" / "lines.yaml").write_text(GOOD)
    (tmp_path / "serve.log").write_text(
        "Initializing a V1 LLM engine (v0.25.1) with config: model='m'\npool holds 3.50 GiB\n"
    )
    words = ["derive", "--engine", "vllm", "--gpu-memory", "24GiB", "--from-log"]
    words += [str(tmp_path / "serve.log"), "--format", "json"]
    laid = CliRunner().invoke(app, [*words, "--knowledge", str(tmp_path / "own")])
    assert json.loads(laid.stdout)["result"]["kv_cache_memory"] == int(3.5 * 2**30)
    assert CliRunner().invoke(app, words).exit_code != 0
