"""Hostile and broken input: nothing runs, nothing explodes, nothing escapes the tree."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kvbudget.gate.evaluate import Report, Request, run
from kvbudget.gate.policy import Policy
from kvbudget.render.gate import as_text


def judge(root: Path, **options: object) -> Report:
    return run(Request(root=root, **options), Policy(base=root))


def test_alias_bomb(tmp_path: Path):
    rows = ["a0: &a0 [vllm, vllm, vllm, vllm, vllm, vllm, vllm, vllm, vllm]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    (tmp_path / "bomb.yaml").write_text("\n".join([*rows, "engine_kwargs: *a8", ""]))
    start = time.monotonic()
    judge(tmp_path)
    assert time.monotonic() - start < 10


def test_alias_in_itself(tmp_path: Path):
    (tmp_path / "self.yaml").write_text("a: &a {vllm: *a}\n")
    assert [p.message.split(":")[0] for p in judge(tmp_path).problems] == ["cannot read as YAML"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.yaml", "vllm: " + "[" * 5000 + "]" * 5000),
        ("deep.json", '{"vllm": ' + "[" * 5000 + "]" * 5000 + "}"),
        ("deep.tf", "vllm = " + "[" * 5000 + "]" * 5000),
        ("deep.py", "vllm = " + "(" * 5000 + ")" * 5000),
        ("deep.sh", "vllm serve " + "$(" * 500 + ")" * 500),
    ],
)
def test_deep_nesting_ends(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)
    judge(tmp_path)


def test_huge_files_are_not_read(tmp_path: Path):
    (tmp_path / "big.sh").write_text(
        "vllm serve a --gpu-memory-utilization 0.99\n" + "#" * (1 << 20)
    )
    report = judge(tmp_path)
    assert not report.invocations
    assert "larger than 1 MiB" in report.notes[0]


def test_links_out_of_the_tree(tmp_path: Path):
    inside, outside = tmp_path / "in", tmp_path / "out.sh"
    inside.mkdir()
    outside.write_text("vllm serve secret --gpu-memory-utilization 0.99\n")
    (inside / "link.sh").symlink_to(outside)
    (inside / "a.sh").write_text("source ../out.sh\nvllm serve a --config ../out.sh\n")
    report = judge(inside)
    assert [inv.model for inv in report.invocations] == ["a"]


def test_control_characters_stay_visible(tmp_path: Path):
    (tmp_path / "a\x1b[31m.sh").write_text("vllm serve a --gpu-memory-utilization 9\x1b[2J%\n")
    text = as_text(judge(tmp_path))
    assert "\x1b" not in text
    assert "\\x1b" in text


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_marks_change_nothing(tmp_path: Path, line_end: str, mark: bytes):
    text = "set -e\nvllm serve own/a \\\n  --max-model-len 8K \\\n  --gpu-memory-utilization 0.97\n"
    (tmp_path / "a.sh").write_bytes(mark + text.replace("\n", line_end).encode())
    report = judge(tmp_path)
    assert [(f.rule, f.line) for f in report.findings] == [("GATE010", 4)]
    assert report.invocations[0].flags == {"max_model_len": 8192, "gpu_memory_utilization": 0.97}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.yaml", "vllm:\n  - a\n b: c\n", 3),
        ("a.json", '{"vllm": 1,\n "b": }\n', 2),
        ("a.py", "import vllm\nx = (\n", 2),
        ("a.sh", "vllm serve a\necho 'open\n", 2),
        ("Dockerfile", 'FROM vllm/vllm-openai:v0.9.2\nCMD ["--model", acme]\n', 2),
    ],
)
def test_malformed_names_the_line(tmp_path: Path, name: str, text: str, line: int):
    (tmp_path / name).write_text(text)
    report = judge(tmp_path)
    assert report.exit_code == 2
    assert abs(report.problems[0].line - line) <= 1


def test_broken_files_without_an_engine_word_are_skipped(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("a: [\n")
    assert judge(tmp_path).exit_code == 0
    assert judge(tmp_path, paths=["a.yaml"]).exit_code == 2


def test_own_examples_pass_the_own_gate():
    root = Path(__file__).parents[2]
    names = [
        str(path.relative_to(root))
        for path in (root / "examples" / "gate").rglob("*")
        if path.is_file()
    ]
    report = judge(root, paths=names)
    assert len(report.invocations) == 5
    assert {finding.level for finding in report.findings} <= {"note"}


def test_action_passes_inputs_through_the_environment():
    import yaml

    action = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text())
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
