"""Odd corners of the shapes: what is known is read, what is not is a hole, and nothing is guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvbudget.gate.invocation import record
from tests.unit.gate_files import judge, sound, told

if TYPE_CHECKING:
    from pathlib import Path

    from kvbudget.gate.evaluate import Report

POD = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: own}
    spec:
      template:
        spec:
          containers:
          - name: own
            image: vllm/vllm-openai
            args: [--model, own/k]
"""


def one(report: Report) -> dict[str, Any]:
    assert [problem.message for problem in report.problems] == []
    (inv,) = report.invocations
    return record(inv)


CASES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "an unknown word behind docker run is the image": (
        {"a.sh": "docker run $IMG --model own/a --max-num-seqs 4\n"},
        {"model": "own/a", "engine_version_hint": None, "flags": {"max_num_seqs": 4}},
    ),
    "an unknown word behind docker run stands for options": (
        {"a.sh": "docker run $OPTS vllm/vllm-openai:v0.9.2 --model own/a\n"},
        {"model": "own/a", "engine_version": "0.9.2"},
    ),
    "a leading model wins over --model": (
        {"a.sh": "vllm serve own/a --model own/b --max-num-seqs 1_024\n"},
        {"model": "own/a", "flags": {"max_num_seqs": 1024}},
    ),
    "apptainer runs an image by its address": (
        {"job.slurm": "#!/bin/bash\napptainer run --nv docker://vllm/vllm-openai:v0.8.5 --model own/a\n"},
        {"line": 2, "engine_version": "0.8.5", "shm_bytes": None},
    ),
    "srun names the image": (
        {"a.sh": "srun --container-image=vllm/vllm-openai:v0.9.2 bash -c 'vllm serve own/a -tp 2'\n"},
        {"engine_version": "0.9.2", "flags": {"tensor_parallel_size": 2}},
    ),
    "python reads a here-document": (
        {"a.sh": "python3 - <<'PY'\nfrom vllm import LLM\nLLM('own/a', max_model_len=64)\nPY\n"},
        {"line": 3, "flags": {"max_model_len": 64}},
    ),
    "splatted array of PowerShell": (
        {"a.ps1": '$more = @(\n  "--max-num-seqs"\n  "4"\n)\nvllm serve own/a @more\n'},
        {"line": 5, "flags": {"max_num_seqs": 4}},
    ),
    "a recipe on the line of its target": (
        {"Makefile": "M ?= own/a\nup: ; vllm serve $(M) -tp 2\n"},
        {"line": 2, "model": "own/a"},
    ),
    "CMD before ENTRYPOINT stays": (
        {"Dockerfile": 'FROM vllm/vllm-openai:v0.9.2\nCMD ["--max-num-seqs", "4"]\nENTRYPOINT ["vllm", "serve", "own/a"]\n'},
        {"line": 3, "flags": {"max_num_seqs": 4}},
    ),
    "a service extends another": (
        {"compose.yml": """\
            services:
              base:
                image: redis
                ipc: host
                mem_limit: 8g
              own:
                extends: {service: base}
                image: vllm/vllm-openai:v0.9.2
                command: [--model, own/a]
            """},
        {"line": 8, "host_memory_limit_bytes": 8 << 30},
    ),
    "chart keys with an abbreviation": (
        {"values.yaml": """\
            modelSpec:
            - name: own
              repository: vllm/vllm-openai
              tag: v0.9.2
              modelURL: own/a
              vllmConfig: {enableLoRA: true, maxNumSeqs: 8}
            """},
        {"flags": {"enable_lora": True, "max_num_seqs": 8}},
    ),
    "Serve config inside a RayService": (
        {"r.yaml": """\
            apiVersion: ray.io/v1
            kind: RayService
            spec:
              serveConfigV2: |
                applications:
                - args:
                    llm_configs:
                    - model_loading_config: {model_id: own/a}
                      engine_kwargs: {max_model_len: 64}
            """},
        {"line": 9, "model": "own/a", "flags": {"max_model_len": 64}},
    ),
    "several cards of one count": (
        {"t.yaml": """\
            resources:
              accelerators: [L4:2, A10G:2]
            envs: {SEQS: null}
            run: vllm serve own/a -tp $SKYPILOT_NUM_GPUS_PER_NODE --max-num-seqs $SEQS
            """},
        {"gpus": 2, "gpu_type": None, "flags": {"tensor_parallel_size": 2}, "unresolved": ["max_num_seqs"]},
    ),
    "a connector's object": (
        {"a.py": """\
            from vllm import LLM
            from vllm.config import KVTransferConfig
            LLM("own/a", kv_transfer_config=KVTransferConfig(kv_connector="X", kv_role="kv_both"))
            """},
        {"flags": {"kv_transfer_config": {"kv_connector": "X", "kv_role": "kv_both"}}},
    ),
    "strings that Python fills in": (
        {
            "a.py": 'import os, subprocess\nL = os.getenv("L") or 64\nsubprocess.run("vllm serve {} --max-model-len {len} --max-num-seqs {1}".format("own/a", x, len=L), shell=True)\n'
        },
        {
            "line": 3,
            "model": "own/a",
            "flags": {"max_model_len": 64},
            "unresolved": ["max_num_seqs"],
        },
    ),
    "a config file behind a mount": (
        {
            "compose.yml": """\
                services:
                  own:
                    image: vllm/vllm-openai:v0.9.2
                    volumes: ["./conf:/etc/own:ro"]
                    command: [--config, /etc/own/own.yaml]
                """,
            "conf/own.yaml": "model: own/a\nmax-model-len: 64\n",
        },
        {"file": "compose.yml", "model": "own/a", "flags": {"max_model_len": 64}},
    ),
    "a batch processor of Ray": (
        {
            "a.py": "from ray.data.llm import vLLMEngineProcessorConfig\nvLLMEngineProcessorConfig(model_source='own/a', engine_kwargs={'max_model_len': 64})\n"
        },
        {"line": 2, "model": "own/a", "flags": {"max_model_len": 64}},
    ),
    "words of a process": (
        {
            "a.py": "import asyncio\nasyncio.create_subprocess_exec('vllm', 'serve', 'own/a', '--max-num-seqs', '4')\n"
        },
        {"line": 2, "model": "own/a", "flags": {"max_num_seqs": 4}},
    ),
    "a placeholder in properties": (
        {"serving.properties": "engine=Python\noption.model_id={{id}}\noption.rolling_batch=vllm\noption.max_model_len=64\n"},
        {"line": 2, "model": None, "unresolved": ["model"], "flags": {"max_model_len": 64}},
    ),
    "python as a step's shell": (
        {"w.yml": """\
            jobs:
              a:
                steps:
                - shell: python
                  run: |
                    from vllm import LLM
                    LLM("own/a", max_model_len=64)
            """},
        {"line": 7, "flags": {"max_model_len": 64}},
    ),
    "a role's template": (
        {
            "roles/own/defaults/main.yml": "own_model: own/a\n",
            "roles/own/templates/v.service.j2": "[Service]\nExecStart=/usr/bin/vllm serve {{ own_model }} -tp {{ tp }}\n",
        },
        {"line": 2, "model": "own/a", "unresolved": ["tensor_parallel_size"]},
    ),
    "a file without an engine's name": (
        {"config.yaml": "max-model-len: 64\nkv-cache-dtype: fp8\n"},
        {"line": 1, "engine": "vllm", "flags": {"max_model_len": 64, "kv_cache_dtype": "fp8"}},
    ),
    "JSON with comments": (
        {"launch.json": '{\n  // note\n  "model": "own/a", /* vllm */\n  "max_model_len": 64,\n  "max_num_seqs": 4\n}\n'},
        {"line": 3, "flags": {"max_model_len": 64, "max_num_seqs": 4}},
    ),
    "a template without its values": (
        {"templates/d.yaml": """\
            kind: Pod
            apiVersion: v1
            spec:
              containers:
              - image: {{ .Values.image }}
                command: [vllm, serve, "{{ .Values.model }}"]
                args:
                - --max-num-seqs={{ .Values.seqs | default 8 }}
                - --max-model-len
                - {{ .Values.len | quote }}
                {{- if .Values.fp8 }}
                - --kv-cache-dtype=fp8
                {{- else }}
                - --block-size=16
                {{- end }}
                {{- toYaml .Values.more | nindent 10 }}
            """},
        {"line": 6, "model": None, "unresolved": ["max_model_len", "model"], "flags": {"max_num_seqs": 8},
         "engine_version_hint": None},
    ),
    "helpers beside a template": (
        {
            "deploy/_helpers.tpl": '{{- define "own.args" -}}\n- --model=own/a\n- --max-num-seqs={{ .Values.n | default 4 }}\n{{- end }}\n',
            "deploy/d.yaml": 'apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.9.2\n    args:\n    {{- include "own.args" . | nindent 4 }}\n',
        },
        {"line": 5, "model": "own/a", "flags": {"max_num_seqs": 4}},
    ),
    "an overlay with operations and a tag": (
        {
            "base/d.yaml": POD,
            "base/kustomization.yaml": "resources: [d.yaml]\n",
            "over/kustomization.yaml": "resources: [../base]\nimages: [{name: vllm/vllm-openai, newTag: v0.10.2}]\npatches: [{path: ops.yaml, target: {kind: Deployment}}]\n",
            "over/ops.yaml": "- {op: add, path: /spec/template/spec/containers/0/args/-, value: --gpu-memory-utilization=0.98}\n",
        },
        {"file": "base/d.yaml", "line": 9, "model": "own/k", "engine_version": "0.10.2",
         "flags": {"gpu_memory_utilization": 0.98}},
    ),
    "an overlay that replaces arguments, with a component": (
        {
            "base/d.yaml": POD,
            "base/kustomization.yaml": "resources: [d.yaml]\n",
            "gpu/kustomization.yaml": "kind: Component\npatches:\n- target: {name: o.*}\n  patch: |\n    - {op: add, path: /spec/template/spec/containers/0/resources, value: {limits: {nvidia.com/gpu: 2}}}\n",
            "over/kustomization.yaml": "resources: [../base]\ncomponents: [../gpu]\npatchesStrategicMerge: [p.yaml]\n",
            "over/p.yaml": "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: own}\nspec: {template: {spec: {containers: [{name: own, args: [--model, own/big, -tp, '2']}]}}}\n",
        },
        {"file": "base/d.yaml", "model": "own/big", "gpus": 2, "flags": {"tensor_parallel_size": 2}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_shape(tmp_path: Path, name: str) -> None:
    files, expected = CASES[name]
    assert told(sound(tmp_path, files), expected) == [expected]


def test_the_finding_of_an_overlay_stands_in_its_patch(tmp_path: Path) -> None:
    report = judge(tmp_path, CASES["an overlay with operations and a tag"][0])
    assert [(f.rule, f.file, f.line) for f in report.findings] == [("GATE010", "over/ops.yaml", 1)]


def test_two_overlays_stand_beside_their_base(tmp_path: Path) -> None:
    files = dict(CASES["an overlay with operations and a tag"][0])
    files["dev/kustomization.yaml"] = "resources: [../base]\npatches: [{path: ops.yaml}]\n"
    files["dev/ops.yaml"] = files["over/ops.yaml"].replace("0.98", "0.5")
    report = judge(tmp_path, files)
    assert [(inv.file, inv.get("gpu_memory_utilization")) for inv in report.invocations] == [
        ("base/d.yaml", None), ("dev/ops.yaml", 0.5), ("over/ops.yaml", 0.98),
    ]  # fmt: skip


def test_services_that_share_an_image_are_two(tmp_path: Path) -> None:
    report = judge(tmp_path, {"compose.yml": """\
        x-own: &own {image: "vllm/vllm-openai:v0.9.2", ipc: host}
        services:
          a:
            <<: *own
            command: [--model, own/a]
          b:
            <<: *own
            command: [--model, own/b, --gpu-memory-utilization, "0.98"]
        """})  # fmt: skip
    assert [(inv.line, inv.model) for inv in report.invocations] == [(1, "own/a"), (8, "own/b")]
    assert [f.rule for f in report.findings] == ["GATE010"]


def test_unpinned_package_on_a_pinned_foreign_image(tmp_path: Path) -> None:
    text = 'FROM nvidia/cuda:12.4.1-devel\nRUN pip install vllm\nENTRYPOINT ["vllm", "serve", "own/a"]\n'
    report = judge(tmp_path, {"Dockerfile": text})
    assert [(f.rule, f.level, f.line) for f in report.findings] == [("GATE002", "warning", 2)]


SILENT = {
    "null command": {"a.sh": ": vllm serve own/a --gpu-memory-utilization 0.99\n"},
    "trainer": {"t.yaml": "rollout: {name: vllm, gpu_memory_utilization: 0.99, max_model_len: 64}\n"},
    "broken file without an engine": {"a.yaml": "max-model-len: [\n"},
    "overlay of a web address": {
        "kustomization.yaml": "resources: ['https://example.test/x?ref=v1']\npatches: [{path: p.yaml}]\n",
        "p.yaml": "kind: Deployment\napiVersion: apps/v1\nspec: {template: {spec: {containers: [{name: v, args: [vllm, serve, own/a, -tp, '2']}]}}}\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_nothing_to_find(tmp_path: Path, name: str) -> None:
    report = judge(tmp_path, SILENT[name])
    assert (report.findings, report.problems, report.exit_code) == ([], [], 0)


def test_a_reader_fault_stays_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvbudget.gate.readers import dockerfile

    def fault(_context: object) -> None:
        raise KeyError("own fault")

    monkeypatch.setattr(dockerfile, "read", fault)
    report = judge(tmp_path, {
        "Dockerfile": "FROM vllm/vllm-openai\n",
        "a.sh": "vllm serve own/a --gpu-memory-utilization 0.98\n",
    })  # fmt: skip
    assert [(p.file, p.message.startswith("could not be read")) for p in report.problems] == [
        ("Dockerfile", True)
    ]
    assert [f.rule for f in report.findings] == ["GATE010"]
    assert report.exit_code == 2


@pytest.mark.parametrize(
    ("image", "release", "pinned"),
    [
        ("vllm/vllm-openai:v0.10.2rc1", "0.10.2", True),
        ("docker.io/lmsysorg/sglang:v0.5.5.post3-cu130-runtime", "0.5.5.post3", True),
        ("registry.test:5000/proxy/vllm/vllm-openai:v0.11.0-x86_64", "0.11.0", True),
        ("rocm/vllm:rocm6.3.1_vllm_0.8.5_20250513", "0.8.5", True),
        ("vllm/vllm-openai:cu130-nightly", None, False),
        ("vllm/vllm-openai:nightly-0123456789abcdef", None, True),
        ("vllm/vllm-openai@sha256:00", None, True),
        ("vllm/vllm-openai", None, False),
        ("ghcr.io/llm-d/llm-d:v0.4.0", None, True),
    ],
)
def test_releases_of_images(image: str, release: str | None, pinned: bool) -> None:
    from kvbudget.gate.images import engine_release, parse_image

    parsed = parse_image(image)
    assert parsed is not None
    assert (engine_release(parsed), parsed.pinned) == (release, pinned)
