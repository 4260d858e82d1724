"""The documentation agrees with the program."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("kvbudget_docs", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date():
    for path, text in generator().pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make docs`"


def test_every_exit_code_is_documented():
    from kvbudget import errors

    text = (DOCS / "exit-codes.md").read_text(encoding="utf-8")
    for name in dir(errors):
        if name.startswith("EXIT_"):
            assert re.search(rf"^\| {getattr(errors, name)} \|", text, re.MULTILINE), name


MARKDOWN = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} -> {target}"
