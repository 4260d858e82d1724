"""What the pages show is what the program prints: every console block is run and compared."""

from __future__ import annotations

import importlib.util
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


def test_output_is_replaced_and_the_shell_is_kept():
    page = "x\n```console\n$ A=1; cd docs\nstale\n```\ny\n```console\n$ echo $A; ls -d samples\n```\n"
    assert transcripts.refreshed(page) == (
        "x\n```console\n$ A=1; cd docs\n```\ny\n```console\n$ echo $A; ls -d samples\n1\nsamples\n```\n"
    )
