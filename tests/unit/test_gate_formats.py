"""Machine formats, exit codes, suppressions, baseline and policy through the public command."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import jsonschema
import pytest

import kvbudget
from kvbudget.cli.app import main

SCHEMAS = Path(__file__).parents[1] / "schemas"
BAD = "vllm serve own/chat --gpu-memory-utilization 0.97 --swap-space 4\n"


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def gate(cwd: Path, *args: str, env: dict[str, str] | None = None) -> Done:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    code = 0
    with (
        mock.patch.dict(os.environ, {**clean, **(env or {})}, clear=True),
        mock.patch.object(sys, "argv", ["kvbudget", "gate", *args]),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out.flush()
    return Done(code, out.buffer.getvalue().decode(), err.getvalue())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "a%,b.sh").write_text(BAD)
    return tmp_path


def test_json_follows_its_schema(tree: Path):
    done = gate(tree, "--format", "json")
    document = json.loads(done.stdout)
    schema = json.loads((Path(kvbudget.__file__).parent / "schemas" / "gate.json").read_text())
    jsonschema.validate(document, schema)
    assert done.returncode == document["exit_code"] == 1


@pytest.mark.parametrize("name", ["text", "json", "markdown", "sarif", "github", "junit", "gitlab"])
def test_format_never_changes_the_exit_code(tree: Path, name: str):
    assert gate(tree, "--format", name).returncode == 1
    assert gate(tree, "--format", name, "--exit-zero").returncode == 0


def test_sarif(tree: Path):
    run = json.loads(gate(tree, "--format", "sarif").stdout)["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert len(result["partialFingerprints"]["kvbudget/v1"]) == 64
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"] == {"uri": "a%25%2Cb.sh", "uriBaseId": "SRCROOT"}
    assert run["invocations"][0]["executionSuccessful"] is True


@pytest.fixture
def hostile(tree: Path) -> Path:
    """Names and values with markup, quotes and control characters; broken files; suppressions."""
    (tree / 'a\x01<&"b.sh').write_text(
        "vllm serve 'own/<&\x02>' --gpu-memory-utilization 0.97\n" * 2
    )
    (tree / "broken\x07&.yaml").write_text("vllm: [\n")
    (tree / "c.sh").write_text(
        "vllm serve own/a --gpu-memory-utilization 0.97 # kvbudget: ignore[GATE010] own\n"
        "vllm serve own/a --gpu-memory-utilization 0.97 --max-model-len $LEN\n"
    )
    return tree


def test_sarif_follows_the_schema_and_the_limits_of_code_scanning(hostile: Path):
    document = json.loads(gate(hostile, "--format", "sarif").stdout)
    schema = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text())
    errors = list(jsonschema.Draft4Validator(schema).iter_errors(document))
    assert [(list(error.path), error.message) for error in errors] == []
    (run,) = document["runs"]
    assert any(result.get("suppressions") for result in run["results"])
    assert run["invocations"][0]["executionSuccessful"] is False
    assert len(run["results"]) <= 25_000
    rules = run["tool"]["driver"]["rules"]
    assert len(rules) <= 25_000
    assert all(len(rule["properties"]["tags"]) <= 20 for rule in rules)
    assert all(len(result["locations"]) <= 1_000 for result in run["results"])


JUNIT_CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}


def test_junit_is_what_ci_servers_read(hostile: Path):
    text = gate(hostile, "--format", "junit", "--fail-on", "note").stdout
    root = ElementTree.fromstring(text.encode())
    for element in root.iter():
        assert {child.tag for child in element} <= JUNIT_CHILDREN.get(element.tag, set())
    for suite in (root, *root.iter("testsuite")):
        said = {
            name: int(suite.get(name, -1)) for name in ("tests", "failures", "errors", "skipped")
        }
        cases = list(suite.iter("testcase"))
        assert said == {
            "tests": len(cases),
            "failures": sum(case.find("failure") is not None for case in cases),
            "errors": sum(case.find("error") is not None for case in cases),
            "skipped": sum(case.find("skipped") is not None for case in cases),
        }
    assert all(case.get("name") and case.get("classname") for case in root.iter("testcase"))
    assert int(root.get("errors", 0)) == 1


GITLAB = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": "^(?!\\./|/)"},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}


def test_gitlab_follows_its_documentation(hostile: Path):
    issues = json.loads(gate(hostile, "--format", "gitlab").stdout)
    jsonschema.validate(issues, GITLAB)
    assert len({issue["fingerprint"] for issue in issues}) == len(issues) > 3
    clean = hostile / "clean"
    clean.mkdir()
    assert json.loads(gate(clean, "--format", "gitlab").stdout) == []


def test_github_escapes(tree: Path):
    rows = gate(tree, "--format", "github").stdout.splitlines()
    assert rows[0].startswith("::error file=a%25%2Cb.sh,line=1,title=GATE010 ")
    assert rows[1].startswith("::warning ")


def test_junit_and_gitlab(tree: Path):
    (tree / "broken.yaml").write_text("vllm: [\n")
    done = gate(tree, "--output", "junit:j.xml", "--output", "gitlab:g.json")
    assert done.returncode == 2
    root = ElementTree.parse(tree / "j.xml").getroot()
    assert root.find(".//failure").get("type") == "GATE010"
    assert root.find(".//error") is not None
    issues = json.loads((tree / "g.json").read_text())
    assert len({issue["fingerprint"] for issue in issues}) == len(issues) == 3


def test_baseline_round_trip(tree: Path):
    assert gate(tree, "--write-baseline", "base.json").returncode == 0
    assert gate(tree, "--baseline", "base.json", "--fail-on", "note").returncode == 0
    (tree / "a%,b.sh").write_text(BAD.replace("0.97", "0.98").replace("--swap-space 4", ""))
    done = gate(tree, "--baseline", "base.json")
    assert done.returncode == 1
    assert "stale baseline entry GATE031" in done.stderr


def test_suppressions(tmp_path: Path):
    (tmp_path / "a.sh").write_text(
        "# kvbudget: ignore-next-line[GATE010] soak-tested\n"
        "vllm serve own/a --gpu-memory-utilization 0.97\n"
        "vllm serve own/b --gpu-memory-utilization 0.97  # kvbudget: ignore[GATE010]\n"
        "vllm serve own/c --kv-offloading-size 16GB  # kvbudget: ignore[GATE032] no\n"
    )
    document = json.loads(gate(tmp_path, "--format", "json").stdout)
    assert [(f["rule"], f["line"]) for f in document["suppressed"]] == [
        ("GATE010", 2),
        ("GATE010", 3),
    ]
    assert [(f["rule"], f["line"]) for f in document["findings"]] == [
        ("GATE003", 3),
        ("GATE004", 4),
        ("GATE032", 4),
    ]


@pytest.mark.parametrize(
    ("text", "where", "near"),
    [
        ("gate:\n  rules:\n    GATE100: off\n", "kvbudget.yaml:3", "GATE100"),
        (
            "gate:\n  rules:\n    GATE010: {max_utilisation: 0.9}\n",
            "kvbudget.yaml:3",
            "max_utilization",
        ),
        ("gate:\n  fail_onn: error\n", "kvbudget.yaml:2", "fail_on"),
        ("gate: [\n", "kvbudget.yaml", "YAML"),
    ],
)
def test_bad_policy(tree: Path, text: str, where: str, near: str):
    (tree / "kvbudget.yaml").write_text(text)
    done = gate(tree)
    assert done.returncode == 2
    assert where in done.stderr
    assert near in done.stderr


def test_nothing_found(tmp_path: Path):
    done = gate(tmp_path)
    assert done.returncode == 0
    assert "no engine invocations found" in done.stderr
    assert gate(tmp_path, "--require-invocations").returncode == 3


def test_step_summary_and_default_on_github(tree: Path):
    done = gate(tree, env={"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tree / "s.md")})
    assert "::error file=" in done.stdout
    assert "| error | GATE010 |" in (tree / "s.md").read_text()


def test_light_start():
    code = "import sys; from kvbudget.cli import gate; from kvbudget.gate import evaluate; print([m for m in ('torch', 'transformers', 'numba', 'pyarrow', 'pynvml') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
