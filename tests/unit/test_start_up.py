"""What a run does not pay for: other commands, YAML read before, conversions by pydantic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from kvbudget.cli.app import app
from kvbudget.cli.lazy import MODULES
from kvbudget.errors import KnowledgeError
from kvbudget.knowledge import cache
from kvbudget.knowledge.shipped import load_shipped

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load_shipped.cache_clear()
    yield tmp_path
    load_shipped.cache_clear()


def again(path: Path, until: bytes | None = None) -> object:
    load_shipped.cache_clear()
    return load_shipped(path, until)


def test_a_file_is_parsed_once_and_a_changed_file_anew(home, monkeypatch):
    file = home / "a.yaml"
    file.write_text("figures: [1, 2.5, '0x1']\nexamples:\n  - {never: read}\n")
    first = again(file, b"examples:")
    assert first == {"figures": [1, 2.5, "0x1"]}
    monkeypatch.setitem(sys.modules, "yaml", None)  # any parse would now raise ImportError
    assert again(file, b"examples:") == first
    file.write_text("figures: [3]\n")
    with pytest.raises(ImportError):
        again(file)
    monkeypatch.undo()
    assert again(file) == {"figures": [3]}


@pytest.mark.parametrize("spoil", [b"", b"\xc1", b"not msgpack at all"])
def test_a_spoilt_entry_is_made_again(home, spoil):
    file = home / "a.yaml"
    file.write_text("a: 1\n")
    assert again(file) == {"a": 1}
    entry = next(cache.cache_dir().glob("yaml-*.msgpack"))
    good = entry.read_bytes()
    entry.write_bytes(spoil)
    assert again(file) == {"a": 1}
    assert entry.read_bytes() == good


def test_without_a_folder_to_write_to(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    file = home / "a.yaml"
    file.write_text("a: 1\n")
    assert again(file) == {"a": 1}


def test_old_entries_make_room(home):
    for number in range(6):
        got = cache.kept("t", [bytes([number])], lambda b: b, lambda n=number: n, entries=3)
        assert got == number
    assert len(list(cache.cache_dir().glob("t-*.msgpack"))) == 3


def test_broken_and_missing_files_are_named(home):
    file = home / "a.yaml"
    file.write_text("a: [1\n")
    with pytest.raises(KnowledgeError) as failure:
        again(file)
    assert failure.value.file == str(file)
    with pytest.raises(KnowledgeError, match="cannot read"):
        again(home / "none.yaml")


def test_every_command_is_found_under_its_name():
    group = typer.main.get_command(app)
    assert list(group.commands) == list(MODULES)
    for name in MODULES:
        assert group.commands[name].name == name
    assert "no-such" not in group.commands


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["plan", "m", "--gpus", "0"], 2, "--gpus"),
        (["plan", "m", "--gpus", "two"], 2, "--gpus"),
        (["derive", "m", "--format", "xml"], 2, "json"),
        (["deriv"], 2, "derive"),
    ],
)
def test_words_of_the_wrong_kind_are_still_refused(words, code, said):
    result = CliRunner().invoke(app, words)
    assert result.exit_code == code
    assert said in result.output
