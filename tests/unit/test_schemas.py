"""Every JSON a command can print has a schema in the package, and holds to it."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from kvbudget.cli.app import app

PACKAGE = Path(str(files("kvbudget")))
SCHEMAS = PACKAGE / "schemas"
FILES = {"profile-record", "watch-record", "gate-baseline", "formula", "logparsers", "causes"}
"""Schemas of files that are kept and read again, not of what is printed."""


def printed_names():
    text = "\n".join(p.read_text() for p in PACKAGE.rglob("*.py") if "_knowledge" not in p.parts)
    return set(re.findall(r'"schema": f?"kvbudget\.([a-z-]+)/1"', text)) | set(
        re.findall(r'SCHEMA = "kvbudget\.([a-z-]+)/1"', text)
    )


def test_every_schema_named_in_the_code_is_shipped_and_none_else():
    shipped = {path.stem for path in SCHEMAS.glob("*.json")}
    named = printed_names() - FILES
    assert named <= shipped, sorted(named - shipped)
    for path in SCHEMAS.glob("*.json"):
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))
        assert f'"kvbudget.{path.stem}/1"' in path.read_text()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("knowledge list cuda", "knowledge-list"),
        ("knowledge show vllm.kv.available", "knowledge-show"),
        ("knowledge show vllm/pool-v1-0.26", "knowledge-show"),
        ("knowledge check", "knowledge-check"),
        ("knowledge drift vllm --checkout .", "knowledge-drift"),
        ("oom-triage --explain list", "oom-triage-list"),
        ("oom-triage --explain vram.weights", "oom-triage-explain"),
        ("gate --list-rules", "gate-list"),
        ("gate --explain gate013", "gate-explain"),
    ],
)
def test_what_the_commands_about_the_data_print(words, name):
    result = CliRunner().invoke(app, [*words.split(), "--format", "json"])
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    jsonschema.validate(json.loads(result.stdout), schema)
