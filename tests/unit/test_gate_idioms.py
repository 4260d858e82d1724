"""Idioms of real repositories: what a careful reviewer reads in them, and what is no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvbudget.gate.invocation import record
from tests.unit.gate_files import Files, judge, sound, told

if TYPE_CHECKING:
    from pathlib import Path

ONE: dict[str, tuple[Files, dict[str, Any]]] = {
    "python -c in a pod": (
        {"d.yaml": """\
            apiVersion: v1
            kind: Pod
            spec:
              containers:
              - image: vllm/vllm-openai:v0.9.2
                env: [{name: UTIL, value: "0.5"}]
                resources: {limits: {memory: 8Gi}}
                command: [python3, -uc]
                args:
                - |
                  import os
                  from vllm import LLM
                  LLM("own/a",
                      gpu_memory_utilization=float(os.environ["UTIL"]))
            """},
        {"line": 13, "model": "own/a", "engine_version": "0.9.2", "host_memory_limit_bytes": 8 << 30,
         "flags": {"gpu_memory_utilization": 0.5}},
    ),
    "python -c as an entry point": (
        {"Dockerfile": 'FROM vllm/vllm-openai:v0.9.2\nENTRYPOINT ["python3", "-c", "from vllm import LLM; LLM(\'own/a\', max_model_len=64)"]\n'},
        {"line": 2, "engine_version": "0.9.2", "flags": {"max_model_len": 64}},
    ),
    "python -c with a shell's value": (
        {"a.sh": 'docker run --gpus 2 --entrypoint python3 vllm/vllm-openai:v0.9.2 -c "from vllm import LLM; LLM(\'own/a\', max_model_len=$LEN, max_num_seqs=4)"\n'},
        {"gpus": 2, "engine_version": "0.9.2", "flags": {"max_num_seqs": 4}, "unresolved": ["max_model_len"]},
    ),
    "python behind a here-document of a pod": (
        {"d.yaml": """\
            apiVersion: v1
            kind: Pod
            spec:
              containers:
              - image: vllm/vllm-openai:v0.9.2
                command:
                - sh
                - -c
                - |
                  python3 - <<'PY'
                  from vllm import LLM
                  LLM("own/a", max_model_len=64)
                  PY
            """},
        {"line": 12, "engine_version": "0.9.2", "flags": {"max_model_len": 64}},
    ),
    "words of a command line in code": (
        {"a.py": """\
            import subprocess as sp
            from shlex import split
            sp.run(split(
                "vllm serve own/a "
                "--max-model-len '64'"
            ))
            """},
        {"line": 4, "model": "own/a", "flags": {"max_model_len": 64}},
    ),
    "a command that grows": (
        {"a.py": """\
            import subprocess
            cmd = "vllm serve own/a"
            cmd += " --max-model-len 64"
            if fast:
                cmd += " --enforce-eager"
            cmd += more()
            subprocess.Popen(cmd, shell=True)
            """},
        {"line": 7, "model": "own/a", "flags": {"max_model_len": 64}},
    ),
    "a command of joined pieces": (
        {"a.py": """\
            import subprocess
            N = 4
            subprocess.Popen(" ".join(["vllm serve own/a", f"--max-num-seqs {N}"]), shell=True)
            """},
        {"line": 3, "model": "own/a", "flags": {"max_num_seqs": 4}},
    ),
    "a launcher of the engine's own examples": (
        {"a.py": "server, port = launch_server_cmd('python -m sglang.launch_server --model-path own/a --tp 2', 8000)\n"},
        {"engine": "sglang", "model": "own/a", "flags": {"tp_size": 2}},
    ),
    "a program and its words": (
        {"a.py": "import asyncio\nasyncio.create_subprocess_exec('python3', '-m', 'sglang.launch_server', '--model-path', 'own/a')\n"},
        {"engine": "sglang", "model": "own/a"},
    ),
    "fields of a settings class": (
        {"a.py": """\
            from dataclasses import dataclass, field
            from vllm import LLM

            @dataclass
            class Settings:
                model: str = "own/a"
                length: int = field(default=64)
                seqs: int = 8

            class Server:
                def __init__(self, given):
                    self.settings = Settings(seqs=4)
                    self.given = given
                    self.eager = True

                def start(self):
                    s = self.settings
                    return LLM(s.model, max_model_len=s.length, max_num_seqs=s.seqs,
                               enforce_eager=self.eager, block_size=self.given)
            """},
        {"line": 18, "model": "own/a", "unresolved": ["block_size"],
         "flags": {"max_model_len": 64, "max_num_seqs": 4, "enforce_eager": True}},
    ),
    "an attribute with two values": (
        {"a.py": """\
            from vllm import LLM
            class A:
                def __init__(self):
                    self.length = 64
                def long(self):
                    self.length = 128
                def start(self):
                    LLM("own/a", max_model_len=self.length)
            """},
        {"flags": {}, "unresolved": ["max_model_len"]},
    ),
    "variables of a target": (
        {"Makefile": """\
            LEN = 64
            serve: export CUDA_VISIBLE_DEVICES = 0,1
            serve: export SEQS := 4
            serve: LEN = 32
            serve: private TP ?= 2
            serve: deps
            \tvllm serve own/a --max-model-len $(LEN) --max-num-seqs $$SEQS -tp $(TP) --block-size $(SIZE)
            other: SIZE = 16
            """},
        {"line": 7, "gpus": 2, "env": {"CUDA_VISIBLE_DEVICES": "0,1"}, "unresolved": ["block_size"],
         "flags": {"max_model_len": 32, "max_num_seqs": 4, "tensor_parallel_size": 2}},
    ),
    "variables of a pattern of targets": (
        {"Makefile": "L = 64\nserve-%: L += \nserve-%: N = 4\nserve-a:; vllm serve own/a --max-model-len $(L) --max-num-seqs $(N)\n"},
        {"line": 4, "flags": {"max_model_len": 64, "max_num_seqs": 4}},
    ),
    "variables of an included file": (
        {"Makefile": "-include own.env\nexport\nserve:\n\t@vllm serve $(MODEL) --max-num-seqs $$SEQS\n", "own.env": "MODEL=own/a\nSEQS=4\n"},
        {"line": 4, "model": "own/a", "flags": {"max_num_seqs": 4}},
    ),
    "variables that are exported by name": (
        {"Makefile": "SEQS := 4\nexport SEQS\nserve:\n\tvllm serve own/a --max-num-seqs $${SEQS}\n"},
        {"line": 4, "flags": {"max_num_seqs": 4}},
    ),
    "a unit that a task writes": (
        {"site.yml": """\
            - hosts: gpu
              vars: {util: "0.5"}
              tasks:
              - name: unit
                ansible.builtin.copy:
                  dest: /etc/systemd/system/own.service
                  content: |
                    [Service]
                    Environment=CUDA_VISIBLE_DEVICES=0
                    MemoryMax=8G
                    ExecStart=/opt/bin/vllm serve own/a \\
                        --gpu-memory-utilization {{ util }} {% if long is defined %}--max-model-len 64{% endif %}
            """},
        {"line": 11, "gpus": 1, "host_memory_limit_bytes": 8 << 30, "flags": {"gpu_memory_utilization": 0.5}},
    ),
    "a template with the variables of its play": (
        {"site.yml": """\
            - hosts: gpu
              vars_files: [own.yml]
              vars: {seqs: 4}
              tasks:
              - template: {src: vllm.sh.j2, dest: /opt/own/}
            """,
         "own.yml": "long: true\n",
         "templates/vllm.sh.j2": "#!/bin/sh\n{# start #}\nexec vllm serve own/a {% if long %}\\\n  --max-model-len 64{% else %}--max-model-len 32{% endif %} --max-num-seqs {{ seqs }}\n"},
        {"file": "templates/vllm.sh.j2", "line": 3, "flags": {"max_model_len": 64, "max_num_seqs": 4}},
    ),
    "variables of all hosts over a role's defaults": (
        {"roles/own/tasks/main.yml": "- name: block\n  blockinfile:\n    path: /opt/own.sh\n    block: vllm serve own/a --max-num-seqs {{ seqs | int }} --max-model-len {{ len | default(64) }}\n",
         "roles/own/defaults/main.yml": "seqs: 8\n", "group_vars/all.yml": "seqs: 4\n"},
        {"file": "roles/own/tasks/main.yml", "line": 4, "flags": {"max_num_seqs": 4, "max_model_len": 64}},
    ),
    "an object that a task applies": (
        {"tasks/main.yml": """\
            - kubernetes.core.k8s:
                definition:
                  apiVersion: v1
                  kind: Pod
                  spec:
                    containers:
                    - image: vllm/vllm-openai:v0.9.2
                      args: [--model, own/a, --max-num-seqs, "{{ seqs | default('4') }}"]
            """},
        {"line": 7, "engine_version": "0.9.2", "flags": {"max_num_seqs": 4}},
    ),
    "a branch that is not known": (
        {"own.sh.j2": "#!/bin/sh\n{% set n = 4 %}\nvllm serve own/a --max-num-seqs {{ n }} {% if a and b %}--enforce-eager{% elif c %}-tp 2{% else %}-tp 4{% endif %}\n{% for m in models %}\nvllm bench serve {{ m }}\n{% endfor %}\n"},
        {"line": 3, "flags": {"max_num_seqs": 4}},
    ),
    "variables that Nomad fills in": (
        {"own.nomad.hcl": """\
            job "own" {
              group "g" {
                task "t" {
                  driver = "docker"
                  env { LEN = "64" }
                  template {
                    env  = true
                    data = "SEQS=4"
                  }
                  config {
                    image = "vllm/vllm-openai:v0.9.2"
                    args  = ["--model", "own/a", "--max-model-len", "${LEN}", "--max-num-seqs=${SEQS}", "--block-size", "${attr.x}"]
                  }
                }
              }
            }
            """},
        {"line": 11, "flags": {"max_model_len": 64, "max_num_seqs": 4}, "unresolved": ["block_size"]},
    ),
    "words behind a script of sh -c": (
        {"Dockerfile": 'FROM vllm/vllm-openai:v0.9.2\nENTRYPOINT ["/bin/sh", "-c", "exec vllm serve own/a \\"$@\\"", "--"]\nCMD ["--max-num-seqs", "4"]\n'},
        {"line": 2, "model": "own/a", "flags": {"max_num_seqs": 4}},
    ),
    "a script that a Dockerfile writes": (
        {"Dockerfile": "FROM vllm/vllm-openai:v0.9.2\nCOPY <<-\"EOF\" /go.sh\n#!/bin/sh\nexec vllm serve own/a --max-num-seqs 4\nEOF\nENTRYPOINT [\"/go.sh\"]\n"},
        {"line": 4, "engine_version": "0.9.2", "flags": {"max_num_seqs": 4}},
    ),
    "a script that a build step writes": (
        {"Dockerfile": "FROM vllm/vllm-openai:v0.9.2\nRUN cat > /go.sh <<'EOF'\nexec vllm serve own/a --max-num-seqs 4\nEOF\nRUN <<EOF\nvllm serve own/warm-up\nEOF\n"},
        {"line": 3, "engine_version": "0.9.2", "flags": {"max_num_seqs": 4}},
    ),
    "a service over one of another file": (
        {"own.compose.yml": "services:\n  v:\n    extends: {file: base.yml, service: vllm}\n    command: [--model, own/a, --max-num-seqs, '4']\n",
         "base.yml": "services:\n  vllm:\n    build: .\n    image: own/vllm-openai:v0.9.2\n    command: [bash]\n    mem_limit: 8g\n"},
        {"file": "own.compose.yml", "line": 3, "host_memory_limit_bytes": 8 << 30, "flags": {"max_num_seqs": 4}},
    ),
    "a job over others": (
        {".gitlab-ci.yml": """\
            default: {image: "vllm/vllm-openai:v0.9.2"}
            .vars: {variables: {SEQS: "4"}}
            .serve:
              extends: [.vars]
              script: [vllm serve own/a --max-num-seqs $SEQS --max-model-len $LEN]
            long:
              extends: .serve
              variables: {LEN: "64"}
            """},
        {"line": 5, "engine_version": "0.9.2", "flags": {"max_num_seqs": 4, "max_model_len": 64}},
    ),
    "a service of a job": (
        {".gitlab-ci.yml": "t:\n  script: [pytest]\n  services:\n  - {name: 'vllm/vllm-openai:v0.9.2', command: [--model, own/a]}\n"},
        {"line": 4, "model": "own/a", "engine_version": "0.9.2"},
    ),
    "a sidecar that starts first": (
        {"d.yaml": """\
            apiVersion: v1
            kind: Pod
            spec:
              initContainers:
              - {name: get, image: "vllm/vllm-openai:v0.9.2", args: [--model, own/x]}
              - {name: llm, restartPolicy: Always, image: "vllm/vllm-openai:v0.9.2", args: [--model, own/a]}
              containers: [{name: app, image: "own/app:1"}]
            """},
        {"line": 6, "model": "own/a"},
    ),
    "a step of a workflow": (
        {"w.yaml": """\
            apiVersion: argoproj.io/v1alpha1
            kind: Workflow
            spec:
              templates:
              - name: main
                container:
                  image: vllm/vllm-openai:v0.9.2
                  args: [--model, own/a, --max-num-seqs, "{{inputs.parameters.n}}"]
            """},
        {"line": 7, "model": "own/a", "unresolved": ["max_num_seqs"]},
    ),
    "variables beside the script": (
        {"bin/go.sh": 'readonly HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nROOT=$HERE/..\n. "$ROOT/etc/own.env"\nvllm serve "$MODEL"\n', "etc/own.env": "MODEL=own/a\n"},
        {"line": 4, "model": "own/a"},
    ),
    "variables behind the folder of the script": (
        {"bin/go.sh": '. "$(dirname "$0")/own.env"\nvllm serve "$MODEL"\n', "bin/own.env": "MODEL=own/a\n", "own.env": "MODEL=own/b\n"},
        {"line": 2, "model": "own/a"},
    ),
    "variables of an unknown folder": (
        {"bin/go.sh": '. "$CONF/own.env"\nvllm serve "$MODEL"\n', "bin/own.env": "MODEL=own/a\n"},
        {"line": 2, "model": None, "unresolved": ["model"]},
    ),
    "variables that xargs exports": (
        {"go.sh": "export $(grep -v '^#' .env | xargs)\nvllm serve $MODEL\n", ".env": "MODEL=own/a\nVLLM_USE_V1=1\n"},
        {"line": 2, "model": "own/a", "env": {"VLLM_USE_V1": "1"}},
    ),
    "a wrapper that waits first": (
        {"go.sh": "wait-for-it.sh db:1 -- vllm serve own/a\n"}, {"model": "own/a"},
    ),
    "a function that logs and runs": (
        {"go.sh": 'log_and_run "vllm serve own/a"\n'}, {"model": "own/a"},
    ),
    "joined dicts": (
        {"a.py": 'from vllm import LLM\nBASE = {"model": "own/a", "max_model_len": 64}\nLLM(**(BASE | {"max_model_len": 32}))\n'},
        {"line": 3, "model": "own/a", "flags": {"max_model_len": 32}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_one_process(tmp_path: Path, name: str) -> None:
    files, expected = ONE[name]
    assert told(sound(tmp_path, files), expected) == [expected]


NONE: dict[str, Files] = {
    "words that code compares": {
        "a.py": 'import vllm\nassert cmd == ["vllm", "serve", "own/a", "--gpu-memory-utilization", "0.99"]\n'
    },
    "what functions of a script say": {
        "a.sh": """\
            log_info "starting vllm serve own/a --gpu-memory-utilization 0.99"
            my_log 'vllm serve own/a'
            check_process "vllm serve own/a"
            ssh host pkill -f 'vllm serve own/a'
            docker exec own pkill -f "vllm serve own/a"
            read -p "vllm serve own/a?" x
            """,
        "a.ps1": 'Write-Host "vllm serve own/a --gpu-memory-utilization 0.99"\n',
    },
    "broken code behind -c": {"a.sh": 'python3 -c "from vllm import LLM; LLM("\n'},
}


@pytest.mark.parametrize("name", NONE)
def test_no_process(tmp_path: Path, name: str) -> None:
    report = judge(tmp_path, NONE[name])
    assert ([record(inv) for inv in report.invocations], report.findings, report.problems) == (
        [], [], [],
    )  # fmt: skip


def test_code_of_one_line_ends_before_the_next(tmp_path: Path) -> None:
    line = "CUDA_VISIBLE_DEVICES=0 python3 -c \"from vllm import LLM; LLM('own/{}', gpu_memory_utilization=0.6)\"\n"
    report = judge(tmp_path, {"a.sh": line.format("a") + line.format("b")})
    assert len(report.invocations) == 2
    assert [f.rule for f in report.findings] == []


def test_units_written_by_two_scripts_share_no_card(tmp_path: Path) -> None:
    script = """\
        cat > /etc/systemd/system/llm.service <<'UNIT'
        [Service]
        Environment=CUDA_VISIBLE_DEVICES=0
        ExecStart=/usr/bin/vllm serve own/a --gpu-memory-utilization 0.6
        UNIT
        """
    report = judge(tmp_path, {"host-a.sh": script, "host-b.sh": script})
    assert len(report.invocations) == 2
    assert [f.rule for f in report.findings] == []
