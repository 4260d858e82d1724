"""Task runners, CI services, SDKs and infrastructure code: commands of files of no own shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.gate_files import Files, judge, sound, told

if TYPE_CHECKING:
    from pathlib import Path


def terraform(args: str) -> Files:
    return {"m.tf": f"""\
        variable "model" {{ default = "own/a" }}
        locals {{
          args = {args}
        }}
        resource "docker_container" "v" {{
          image   = "vllm/vllm-openai:v0.9.2"
          command = local.args
        }}
        """}  # fmt: skip


ONE: dict[str, tuple[Files, dict[str, Any]]] = {
    "lines of a task with an image and variables": (
        {"own.dstack.yml": """\
            type: service
            image: vllm/vllm-openai:v0.9.2
            env: [MODEL=own/a, HF_TOKEN]
            commands:
            - pip list
            - vllm serve $MODEL
              --max-num-seqs 4
            """},
        {"line": 6, "model": "own/a", "engine_version": "0.9.2", "flags": {"max_num_seqs": 4}},
    ),
    "a start command with an image above": (
        {"config.yaml": 'base_image: {image: "vllm/vllm-openai:v0.9.2"}\ndocker_server:\n  start_command: sh -c "vllm serve own/a -tp 2"\n'},
        {"line": 3, "engine_version": "0.9.2", "flags": {"tensor_parallel_size": 2}},
    ),
    "words of a command": (
        {"p.yaml": "jobs:\n- command: [vllm, serve, own/a, --max-num-seqs, 4]\n"},
        {"line": 2, "model": "own/a", "flags": {"max_num_seqs": 4}},
    ),
    "scripts of a package": (
        {"package.json": '{"scripts": {\n"llm": "vllm serve own/a --max-num-seqs 4"}}\n'},
        {"line": 2, "flags": {"max_num_seqs": 4}},
    ),
    "a composite action": (
        {"action.yml": """\
            inputs: {seqs: {default: "4"}}
            runs:
              using: composite
              steps:
              - shell: bash
                run: vllm serve own/a --max-num-seqs ${{ inputs.seqs }}
            """},
        {"line": 6, "flags": {"max_num_seqs": 4}},
    ),
    "a container as a step": (
        {"w.yml": "jobs:\n  a:\n    steps:\n    - uses: docker://vllm/vllm-openai:v0.9.2\n      with: {args: --model own/a --max-num-seqs 4}\n"},
        {"line": 4, "engine_version": "0.9.2", "flags": {"max_num_seqs": 4}},
    ),
    "a step with a name": (
        {".circleci/config.yml": "jobs:\n  a:\n    steps:\n    - run: {name: x, command: vllm serve own/a}\n"},
        {"line": 4, "model": "own/a"},
    ),
    "a container of Docker's SDK": (
        {"a.py": """\
            import docker
            docker.from_env().containers.run(
                "vllm/vllm-openai:v0.9.2",
                command=["--model", "own/a", "--max-num-seqs", "4"],
                environment={"VLLM_USE_V1": "1"}, mem_limit="8g", shm_size="2g",
                device_requests=[docker.types.DeviceRequest(device_ids=["1", "2"])],
            )
            """},
        {"line": 3, "engine_version": "0.9.2", "flags": {"max_num_seqs": 4}, "env": {"VLLM_USE_V1": "1"},
         "gpu_ids": ["1", "2"], "host_memory_limit_bytes": 8 << 30, "shm_bytes": 2 << 30},
    ),
    "a container of another SDK": (
        {"a.py": "from kubernetes import client\nclient.V1Container(image='vllm/vllm-openai:v0.9.2', args=['--model=own/a', '-tp=2'])\n"},
        {"line": 2, "engine_version": "0.9.2", "flags": {"tensor_parallel_size": 2}},
    ),
    "a class under another name": (
        {"a.py": "from vllm import LLM as Engine\nkw = dict(max_model_len=64)\nkw |= {'max_num_seqs': 4}\nEngine(model=(m := 'own/a'), **kw)\n"},
        {"engine": "vllm", "line": 4, "model": "own/a", "flags": {"max_model_len": 64, "max_num_seqs": 4}},
    ),
    "settings of an engine in TOML": (
        {"own.toml": '# own\nmodel = "own/a"\nmax_model_len = 64\n\nmax-num-seqs = 4\n'},
        {"line": 2, "engine": "vllm", "model": "own/a", "flags": {"max_model_len": 64, "max_num_seqs": 4}},
    ),
    "a command of a TOML task": (
        {"own.toml": '[tasks.get]\nrun = "pip list"\n[tasks.serve]\nrun = [\n  "pip list",\n  "vllm serve own/a --max-num-seqs 4",\n]\n'},
        {"line": 6, "flags": {"max_num_seqs": 4}},
    ),
    "a script of a TOML task": (
        {"pyproject.toml": '[tool.poe.tasks.serve]\nshell = """\nvllm serve own/a \\\n  --max-num-seqs 4\n"""\n'},
        {"line": 3, "flags": {"max_num_seqs": 4}},
    ),
    "numbers that a shell works out": (
        {"a.sh": 'N=4; C=(0 1)\nvllm serve own/a --max-model-len $((N * (1 << 4))) --max-num-seqs ${S:-$((2*N))} -tp ${#C[@]} -pp ${#D[@]} --block-size $((X*2))\n'},
        {"line": 2, "flags": {"max_model_len": 64, "max_num_seqs": 8, "tensor_parallel_size": 2},
         "unresolved": ["block_size", "pipeline_parallel_size"]},
    ),
    "a list that ends with a reference": (
        terraform('concat(["--max-num-seqs", "4", "--model", var.model], ["-tp", "2"])'),
        {"model": "own/a", "flags": {"max_num_seqs": 4, "tensor_parallel_size": 2}},
    ),
    "a list of indexed references": (
        terraform('["--model", var.m["a"].x[0], "--max-num-seqs", "4"]'),
        {"model": None, "unresolved": ["model"], "flags": {"max_num_seqs": 4}},
    ),
    "a list without its empty words": (
        terraform('compact(["--model", "own/a", var.y != "" ? "-tp=2" : "", "--max-num-seqs=4"])'),
        {"model": "own/a", "flags": {"max_num_seqs": 4}},
    ),
    "words split from a string": (
        terraform('split(" ", "--model ${var.model} --max-num-seqs 4")'),
        {"model": "own/a", "flags": {"max_num_seqs": 4}},
    ),
    "a manifest inside infrastructure code": (
        {"m.tf": """\
            resource "kubernetes_manifest" "own" {
              manifest = yamldecode(<<-YAML
                apiVersion: v1
                kind: Pod
                spec:
                  containers:
                  - image: vllm/vllm-openai:v0.9.2
                    args: [--model, own/a]
              YAML
              )
            }
            """},
        {"line": 7, "model": "own/a"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_one_process(tmp_path: Path, name: str) -> None:
    files, expected = ONE[name]
    assert told(sound(tmp_path, files), expected) == [expected]


@pytest.mark.parametrize(
    "files",
    [
        {"mkdocs.yml": "extra: {hint: 'vllm serve own/a --gpu-memory-utilization 0.99'}\n"},
        {"set.json": '[{"prompt": "how", "answer": "vllm serve own/a"}]\n'},
        {
            "check.yaml": "probes:\n- command: [pgrep, -f, vllm serve]\n- run: echo vllm serve own/a\n"
        },
    ],
)
def test_text_is_no_command(tmp_path: Path, files: Files) -> None:
    assert sound(tmp_path, files).invocations == []


def test_each_table_of_an_array_has_its_lines(tmp_path: Path) -> None:
    text = "".join(f'[[own]]\nname = "{n}"\ncommand = "vllm serve own/{n}"\n' for n in "ab")
    got = [(inv.line, inv.model) for inv in sound(tmp_path, {"own.toml": text}).invocations]
    assert got == [(3, "own/a"), (6, "own/b")]


def test_a_broken_file_names_its_language(tmp_path: Path) -> None:
    report = judge(tmp_path, {"own.toml": "a = 1\nb = [vllm\n"})
    assert [(p.file, p.line, "TOML" in p.message) for p in report.problems] == [
        ("own.toml", 2, True)
    ]
    assert report.exit_code == 2
