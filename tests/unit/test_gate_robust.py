"""What must not change a finding: line ends, marks, blanks, the folder's name, the order of flags."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.gate.evaluate import Request, run
from kvbudget.gate.invocation import record
from kvbudget.gate.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[2] / "examples" / "gate"
OWN = {
    "serve.sh": "vllm serve own/a \\\n  --gpu-memory-utilization 0.98 \\\n  --swap-space 4\n",
    "Dockerfile": 'FROM lmsysorg/sglang:v0.5.9\nENV SGLANG_X=1\nCMD ["python3", "-m", "sglang.launch_server", \\\n  "--model-path", "own/b", "--mem-fraction-static", "0.95"]\n',
    "main.tf": 'resource "docker_container" "own" {\n  image = "vllm/vllm-openai:v0.9.2"\n  command = ["--model", "own/c", "--tensor-parallel-size", "2"]\n}\n',
    "task.json": '{"containerDefinitions": [{"image": "vllm/vllm-openai:v0.9.2",\n  "command": ["--model", "own/d", "--gpu-memory-utilization", "0.99"]}]}\n',
    "own.py": "from vllm import LLM\nLLM(\n    'own/e',\n    gpu_memory_utilization=0.97,\n)\n",
    "book.ipynb": '{"cells": [{"cell_type": "code", "source": [\n  "!vllm serve own/f \\\\\\n",\n  "  --gpu-memory-utilization 0.97"\n]}]}\n',
    "own.service": "[Service]\nExecStart=/usr/bin/vllm serve own/g \\\n  --cpu-offload-gb 64\nMemoryMax=32G\n",
    "Makefile": "U ?= 0.97\nup:\n\tvllm serve own/h --gpu-memory-utilization $(U)\n",
    "serving.properties": "engine=Python\noption.model_id=own/i\noption.rolling_batch=vllm\noption.gpu_memory_utilization=0.97\n",
    "run.ps1": "vllm serve own/j `\n  --gpu-memory-utilization 0.97\n",
}  # fmt: skip


def told(root: Path, prefix: str = "") -> tuple[list[Any], list[Any]]:
    report = run(Request(root=root), Policy(base=root))
    assert [problem.message for problem in report.problems] == []
    records = [record(inv) for inv in report.invocations]
    for item in records:
        item["file"] = item["file"].removeprefix(prefix)
    findings = [
        (f.file.removeprefix(prefix), f.line, f.rule, f.level, f.message) for f in report.findings
    ]
    return records, findings


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[list[Any], list[Any]]]:
    root = tmp_path_factory.mktemp("plain")
    shutil.copytree(EXAMPLES, root / "examples")
    for name, text in OWN.items():
        (root / name).write_text(text)
    found = told(root)
    assert len(found[0]) >= len(OWN)
    assert {finding[2] for finding in found[1]} >= {"GATE010", "GATE031", "GATE040", "GATE060"}
    return root, found


def blanks(data: bytes) -> bytes:
    """Not behind a sign that continues the line: there a blank changes the meaning."""
    return re.sub(rb"(?m)(?<=[^\n\\`])$", b"  ", data)


REWRITES: dict[str, Callable[[bytes], bytes]] = {
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "mark": lambda data: b"\xef\xbb\xbf" + data,
    "mark and crlf": lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"),
    "blanks": blanks,
    "no last line end": lambda data: data.rstrip(b"\n"),
}


@pytest.mark.parametrize("name", REWRITES)
def test_bytes_that_mean_the_same(plain: Any, tmp_path: Path, name: str) -> None:
    source, found = plain
    root = tmp_path / "tree"
    shutil.copytree(source, root)
    for path in root.rglob("*"):
        if path.is_file():
            path.write_bytes(REWRITES[name](path.read_bytes()))
    assert told(root) == found


def test_another_folder(plain: Any, tmp_path: Path) -> None:
    source, found = plain
    shutil.copytree(source, tmp_path / "some folder" / "ö (1)")
    records, findings = told(tmp_path, "some folder/ö (1)/")
    assert findings == found[1]
    assert records == found[0]


FLAGS = [
    ["--gpu-memory-utilization", "0.97"], ["--max-num-batched-tokens=32768"], ["-tp", "2"],
    ["--kv-offloading-size", "20"], ["--kv-offloading-backend", "native"], ["--enforce-eager"],
    ["--no-enable-prefix-caching"], ["--swap-space", "4"], ["--cudagraph-capture-sizes", "1", "2"],
]  # fmt: skip
RUN = [
    "--gpus 2", "--shm-size=1g", "--memory 24g", "-e VLLM_USE_V1=1", "-d", "--name own",
    "-e PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(flags=st.permutations(FLAGS), options=st.permutations(RUN))
def test_order_of_arguments(
    tmp_path_factory: pytest.TempPathFactory, flags: list[list[str]], options: list[str]
) -> None:
    def judge(arguments: list[list[str]], switches: list[str]) -> tuple[Any, Counter[Any]]:
        root = tmp_path_factory.mktemp("order")
        words = [word for group in arguments for word in group]
        line = f"docker run {' '.join(switches)} vllm/vllm-openai:v0.15.1 --model own/a"
        (root / "a.sh").write_text(f"{line} {' '.join(words)}\n")
        report = run(Request(root=root), Policy(base=root))
        (inv,) = report.invocations
        return record(inv), Counter((f.rule, f.level, f.message) for f in report.findings)

    assert judge(flags, options) == judge(FLAGS, RUN)


def test_sixteen_bits(tmp_path: Path) -> None:
    text = "vllm serve own/a --gpu-memory-utilization 0.98\r\n"
    (tmp_path / "a.ps1").write_bytes(text.encode("utf-16"))
    assert [finding[2] for finding in told(tmp_path)[1]] == ["GATE010"]
