"""Shapes in which engines are configured: one small file each, and what must be read of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.gate_files import Files, judge, sound, told

if TYPE_CHECKING:
    from pathlib import Path

CASES: dict[str, tuple[Files, dict[str, Any]]] = {
    "shell variables": (
        {
            "run.sh": "source ./own.env\nUTIL=${UTIL:-0.9}\nif [ $BIG ]; then UTIL=0.99; fi\n"
            'ARGS=(--max-model-len 8192)\nARGS+=(--enforce-eager)\n'
            'vllm serve "$MODEL" --gpu-memory-utilization $UTIL "${ARGS[@]}" $MORE --max-num-seqs "$N"\n',
            "own.env": "MODEL=own/env\n",
        },
        {"line": 6, "model": "own/env", "unresolved": ["max_num_seqs"],
         "flags": {"gpu_memory_utilization": 0.9, "max_model_len": 8192, "enforce_eager": True}},
    ),
    "unit in a here-document": (
        {"mk.sh": "M=own/m\ncat > /etc/systemd/system/llm.service <<EOF\n[Service]\nMemoryMax=64G\nExecStart=/usr/bin/vllm serve $M \\\\\n  -tp 2\nEOF\n"},
        {"line": 5, "model": "own/m", "flags": {"tensor_parallel_size": 2}, "host_memory_limit_bytes": 64 << 30},
    ),
    "dockerfile with a base stage": (
        {"Dockerfile": 'ARG V=v0.10.1\nFROM vllm/vllm-openai:${V} AS base\nENV VLLM_USE_V1=1\nFROM base\nCMD ["--model", "own/d"]\n'},
        {"line": 2, "model": "own/d", "engine_version": "0.10.1", "env": {"VLLM_USE_V1": "1"}},
    ),
    "compose with interpolation": (
        {"compose.yaml": "services:\n  a:\n    image: vllm/vllm-openai:v0.11.0\n    mem_limit: 32g\n    command: >-\n      --model ${M:-own/c}\n      --max-model-len ${L}\n    deploy: {resources: {reservations: {devices: [{device_ids: ['1','2'], capabilities: [gpu]}]}}}\n"},
        {"line": 3, "model": "own/c", "unresolved": ["max_model_len"], "gpus": 2, "gpu_ids": ["1", "2"], "host_memory_limit_bytes": 32 << 30},
    ),
    "leader worker set": (
        {"l.yaml": "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nspec:\n  leaderWorkerTemplate:\n    size: 2\n    leaderTemplate:\n      spec:\n        containers:\n        - name: l\n          image: vllm/vllm-openai:v0.10.0\n          command: [sh, -c, 'vllm serve own/l -tp 8 -pp $(LWS_GROUP_SIZE)']\n          resources: {limits: {nvidia.com/gpu: 8}}\n"},
        {"line": 11, "flags": {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}, "gpus": 8, "env": {}},
    ),
    "script of a config map": (
        {"m.yaml": "apiVersion: v1\nkind: ConfigMap\ndata:\n  go.sh: |\n    exec vllm serve $MODEL --max-num-seqs 4\n---\napiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}\n      containers:\n      - image: vllm/vllm-openai:v0.14.1\n        command: [bash, /scripts/go.sh]\n        env: [{name: MODEL, value: own/cm}]\n"},
        {"line": 5, "model": "own/cm", "gpu_type": "L40S", "engine_version": "0.14.1"},
    ),
    "dynamo": (
        {"d.yaml": "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nspec:\n  services:\n    W:\n      resources: {limits: {gpu: '2'}}\n      sharedMemory: {size: 8Gi}\n      extraPodSpec:\n        mainContainer:\n          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.6.0\n          command: [python3, -m, dynamo.vllm]\n          args: [--model, own/dy]\n"},
        {"line": 11, "model": "own/dy", "gpus": 2, "shm_bytes": 8 << 30, "engine_version": None, "engine_version_hint": "0.6.0"},
    ),
    "helm template without values": (
        {"t.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  template:\n    spec:\n      containers:\n        - name: v\n          image: \"vllm/vllm-openai:v0.9.2\"\n          args:\n            - --model={{ .Values.model }}\n            - --gpu-memory-utilization={{ .Values.u | default 0.9 }}\n            {{- if .Values.eager }}\n            - --enforce-eager\n            {{- end }}\n"},
        {"line": 10, "model": None, "unresolved": ["model"], "flags": {"gpu_memory_utilization": 0.9}},
    ),
    "skypilot": (
        {"s.yaml": "resources: {accelerators: L4:2}\nenvs: {M: own/s}\nsetup: uv pip install vllm==0.8.5\nrun: |\n  vllm serve $M -tp $SKYPILOT_NUM_GPUS_PER_NODE\n"},
        {"line": 5, "model": "own/s", "gpus": 2, "gpu_type": "L4", "engine_version": "0.8.5", "flags": {"tensor_parallel_size": 2}},
    ),
    "ansible role": (
        {"roles/v/tasks/main.yml": "- name: x\n  community.docker.docker_container:\n    image: vllm/vllm-openai:{{ ver }}\n    command: --model {{ m }} --max-model-len {{ n | default(4096) }}\n    memory: \"{{ mem }}\"\n", "roles/v/defaults/main.yml": "ver: v0.10.0\nm: own/an\nmem: 64g\n"},
        {"line": 3, "model": "own/an", "engine_version": "0.10.0", "flags": {"max_model_len": 4096}, "host_memory_limit_bytes": 64 << 30},
    ),
    "config file of a command": (
        {"v.yaml": "model: own/co\ngpu-memory-utilization: 0.97\nmax_model_len: 32K\n", "r.sh": "vllm serve --config v.yaml --gpu-memory-utilization 0.9\n"},
        {"file": "r.sh", "model": "own/co", "flags": {"gpu_memory_utilization": 0.9, "max_model_len": 32768}},
    ),
    "python": (
        {"p.py": "from vllm import LLM\nKW = {'tensor_parallel_size': 2}\ndef f(u=0.9):\n    return LLM('own/p', gpu_memory_utilization=u, **KW)\n"},
        {"line": 4, "model": "own/p", "flags": {"gpu_memory_utilization": 0.9, "tensor_parallel_size": 2}},
    ),
    "python argv that grows": (
        {"p.py": "import subprocess\ncmd = ['vllm', 'serve', 'own/g']\ncmd += ['--max-model-len', str(1 << 12)]\nsubprocess.run(cmd)\n"},
        {"line": 2, "model": "own/g", "flags": {"max_model_len": 4096}},
    ),
    "justfile": (
        {"justfile": "m := 'own/j'\nserve port='80':\n    vllm serve {{m}} --port {{port}} \\\n      --max-num-seqs 4\n"},
        {"line": 3, "model": "own/j", "flags": {"max_num_seqs": 4}},
    ),
    "properties": (
        {"serving.properties": "engine=Python\noption.model_id=own/lmi\noption.rolling_batch=vllm\noption.tensor_parallel_degree=4\n"},
        {"line": 2, "model": "own/lmi", "flags": {"tensor_parallel_size": 4}},
    ),
    "terraform locals": (
        {"m.tf": 'locals {\n  a = ["--model", "own/tf", "--max-num-seqs", "4"]\n}\nresource "docker_container" "v" {\n  image   = "vllm/vllm-openai:v0.10.0"\n  command = local.a\n  memory  = 1024\n}\n'},
        {"line": 5, "model": "own/tf", "flags": {"max_num_seqs": 4}, "host_memory_limit_bytes": 1 << 30},
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", list(CASES))
def test_shape(shape: str, tmp_path: Path):
    files, expected = CASES[shape]
    assert told(sound(tmp_path, files), expected) == [expected]


def test_compose_counts_share_the_first_card(tmp_path: Path):
    devices = "{resources: {reservations: {devices: [{count: 1, capabilities: [gpu]}]}}}"
    service = (
        "    image: vllm/vllm-openai:v0.20.2\n    ipc: host\n    deploy: "
        + devices
        + "\n    command: --model own/{0} --gpu-memory-utilization {1}\n"
    )
    text = "services:\n" + "".join(
        f"  {n}:\n" + service.replace("{0}", n).replace("{1}", u)
        for n, u in (("a", "0.6"), ("b", "0.5"))
    )
    report = judge(tmp_path, {"compose.yaml": text})
    assert [(f.rule, f.line) for f in report.findings] == [("GATE013", 11)]


@pytest.mark.parametrize(
    "text",
    [
        "echo vllm serve own/a --gpu-memory-utilization 0.99\n",
        "vllm bench serve --model own/a\nvllm --version\npip install vllm\n",
        "cat <<E\nvllm serve own/a --gpu-memory-utilization 0.99\nE\n",
        "pkill -f 'vllm serve'\n# vllm serve own/a --gpu-memory-utilization 0.99\n",
    ],
)
def test_words_that_are_no_server(text: str, tmp_path: Path):
    assert not judge(tmp_path, {"a.sh": text}).invocations
