"""What the pages show is what the program prints: every console block is run and compared."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load_transcripts():
    spec = importlib.util.spec_from_file_location("transcripts", ROOT / "docs" / "transcripts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


transcripts = load_transcripts()


@pytest.mark.parametrize("page", transcripts.pages(), ids=lambda path: path.name)
def test_a_page_shows_what_the_program_prints(page):
    text = page.read_text(encoding="utf-8")
    assert transcripts.refreshed(text) == text, f"{page.name}: run `make docs`"


def test_the_tutorial_goes_the_whole_way():
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    told = ["oom-triage", "explain-log", "plan", "diff", "gate", "residency", "watch"]
    places = [text.index(f"$ kvbudget {command}") for command in told]
    assert places == sorted(places)


def test_a_command_may_go_on_in_the_next_line():
    assert transcripts.commands("$ a \\\n  b\nout\n$ c\n") == ["a \\\n  b", "c"]


def test_a_command_may_hold_a_file():
    block = "$ cat > f <<'END'\n$ not a command\nEND\nout\n$ c\n"
    assert transcripts.commands(block) == ["cat > f <<'END'\n$ not a command\nEND", "c"]


def test_output_is_replaced_and_the_shell_is_kept():
    page = (
        "x\n```console\n$ A=1; cd docs\nstale\n```\ny\n```console\n$ echo $A; ls -d samples\n```\n"
    )
    assert transcripts.refreshed(page) == (
        "x\n```console\n$ A=1; cd docs\n```\ny\n```console\n$ echo $A; ls -d samples\n1\nsamples\n```\n"
    )


def json_rows():
    text = (ROOT / "SKILL.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `(kvbudget [^`]+)` \| (.+) \|$", text, re.MULTILINE)


def test_the_skill_names_every_command():
    text = (ROOT / "SKILL.md").read_text(encoding="utf-8")
    from kvbudget.cli.lazy import MODULES

    assert all(f"`{name}" in text or f"kvbudget {name}" in text for name in MODULES)
    assert len(json_rows()) >= 8


@pytest.mark.parametrize(("command", "paths"), json_rows(), ids=lambda text: text[:28])
def test_the_json_paths_of_the_skill_are_there(command, paths):
    folder = ROOT / "docs" / "samples" / "incident"
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "--format", "json"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    document = json.loads(done.stdout)
    for path in re.findall(r"`([^`]+)`", paths):
        assert reached(document, path.split(".")), path


def reached(value, steps):
    """True when the path leads to a key of every entry on the way, of one entry at least."""
    if not steps:
        return True
    name, many, _ = steps[0].partition("[]")
    if not isinstance(value, dict) or name not in value:
        return False
    inner = value[name]
    return any(reached(item, steps[1:]) for item in inner) if many else reached(inner, steps[1:])


def test_the_made_up_release_of_the_guide_is_read():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    first, second, third = re.findall(r"^\d+ patterns?, .+$", text, re.MULTILINE)
    assert first.endswith("1 formula file: 1 error, 0 warnings")
    assert second.endswith("1 formula file: 0 errors, 0 warnings")
    assert third == "1 pattern, 1 sample, 1 reject, 1 formula file: 0 errors, 0 warnings"
    assert "= 58,344,446,361 B (54.34 GiB)" in text
    assert re.search(r"^  kv_cache_memory +54.40 GiB  line 1$", text, re.MULTILINE)
