"""Corners of the shapes in other hands: what stands elsewhere is joined, what is not an engine stays out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.gate_files import judge, sound, told

if TYPE_CHECKING:
    from pathlib import Path

    from kvbudget.gate.evaluate import Report

RELEASE = """\
    apiVersion: helm.toolkit.fluxcd.io/v2
    kind: HelmRelease
    metadata: {name: own}
    spec:
      values:
        defaultPodOptions: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}}
        controllers:
          own:
            containers:
              app:
                image: {repository: vllm/vllm-openai, tag: v0.14.1}
                args: [--model, own/a]
        persistence:
          ram: {type: emptyDir, medium: Memory, sizeLimit: 8Gi, MOUNTS}
"""

CASES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "set -- gives the arguments": (
        {"a.sh": 'set -- own/a --max-num-seqs 4\nset -- "$@" -tp 2\nexec vllm serve "$@"\n'},
        {"line": 3, "model": "own/a", "flags": {"max_num_seqs": 4, "tensor_parallel_size": 2}},
    ),
    "set -- under a condition does not count": (
        {"a.sh": 'set -- own/a\n[ -n "$X" ] && set -- "$@" --max-num-seqs 4\nvllm serve "$@"\n'},
        {"model": "own/a", "flags": {}},
    ),
    "set -- numbers the arguments": (
        {"a.sh": 'set -- own/a 8\nvllm serve "$1" --max-num-seqs $2\n'},
        {"model": "own/a", "flags": {"max_num_seqs": 8}},
    ),
    "sudo tee writes a unit and prints nothing": (
        {
            "a.sh": "sudo tee /etc/systemd/system/own.service >/dev/null <<EOF\n"
            "[Service]\nExecStart=/opt/bin/vllm serve own/a -tp 2\nMemoryMax=8G\nEOF\n"
        },
        {"line": 3, "model": "own/a", "host_memory_limit_bytes": 8 << 30},
    ),
    "specifiers of a unit are known at start only": (
        {
            "own@.service": "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=%i\n"
            "ExecStart=/opt/bin/vllm serve own/a\n"
        },
        {"gpus": None, "env": {}},
    ),
    "pins of an image built in code": (
        {
            "a.py": 'import subprocess\nimage = base.pip_install("vllm==0.11.2", "hf")\n'
            'subprocess.Popen(["vllm", "serve", "own/a"])\n'
        },
        {"line": 3, "engine_version": "0.11.2"},
    ),
    "properties with colons": (
        {
            "serving.properties": "option.model_id: own/a\noption.rolling_batch: vllm\n"
            "option.max_model_len = 512\n"
        },
        {"model": "own/a", "flags": {"max_model_len": 512}},
    ),
    "app-template mounts /dev/shm everywhere": (
        {"a.yaml": RELEASE.replace("MOUNTS", "globalMounts: [{path: /dev/shm}]")},
        {"shm_bytes": 8 << 30, "gpu_type": "L4"},
    ),
    "app-template mounts /dev/shm in one container": (
        {"a.yaml": RELEASE.replace("MOUNTS", "advancedMounts: {own: {app: [{path: /dev/shm}]}}")},
        {"shm_bytes": 8 << 30},
    ),
    "app-template mounts something else": (
        {"a.yaml": RELEASE.replace("MOUNTS", "globalMounts: [{path: /cache}]")},
        {"shm_bytes": None},
    ),
    "a template that leaves image and arguments to values and helpers": (
        {
            "c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n",
            "c/values.yaml": "image: vllm/vllm-openai:v0.20.2\nmodel: own/a\nseqs: 4\n",
            "c/templates/_helpers.tpl": '{{- define "c.args" -}}\n- --model={{ .Values.model }}\n'
            "- --max-num-seqs={{ .Values.seqs }}\n{{- end -}}\n",
            "c/templates/d.yaml": "apiVersion: apps/v1\nkind: Deployment\n"
            "metadata:\n  name: {{ .Release.Name }}\nspec:\n  template:\n    spec:\n"
            "      containers:\n      - name: own\n        image: {{ .Values.image }}\n"
            '        args:\n          {{- include "c.args" . | nindent 10 }}\n',
        },
        {"file": "c/templates/d.yaml", "line": 10, "model": "own/a", "flags": {"max_num_seqs": 4}},
    ),
    "card of a Cloud Run service": (
        {
            "a.yaml": """\
    apiVersion: serving.knative.dev/v1
    kind: Service
    metadata: {name: own}
    spec:
      template:
        spec:
          nodeSelector: {run.googleapis.com/accelerator: nvidia-l4}
          containers:
          - {image: "vllm/vllm-openai:v0.20.2", args: [--model=own/a]}
"""
        },
        {"gpu_type": "L4"},
    ),
}


def rules(report: Report) -> list[str]:
    return [found.rule for found in report.findings]


@pytest.mark.parametrize("name", CASES)
def test_corner(tmp_path: Path, name: str) -> None:
    files, expected = CASES[name]
    assert told(sound(tmp_path, files), expected) == [expected]


def test_a_class_of_the_files_own_is_no_engine(tmp_path: Path) -> None:
    code = "class LLM: ...\n\n\nx = LLM(gpu_memory_utilization=0.99)\n"
    assert judge(tmp_path, {"a.py": code}).invocations == []
    known = "from vllm import LLM\n\nx = LLM(gpu_memory_utilization=0.99)\n"
    assert len(judge(tmp_path, {"a.py": known}).invocations) == 1


def test_the_hosts_shared_memory_is_no_small_one(tmp_path: Path) -> None:
    start = "docker run {} vllm/vllm-openai:v0.9.2 --model own/a -tp 2\n"
    assert "GATE043" in rules(judge(tmp_path, {"a.sh": start.format("-v /tmp:/tmp")}))
    assert "GATE043" not in rules(judge(tmp_path, {"a.sh": start.format("-v /dev/shm:/dev/shm")}))


@pytest.mark.parametrize(
    ("release", "variable", "fires"),
    [
        ("0.7.3", "", False),
        ("0.7.3", "-e VLLM_USE_V1=1 ", True),
        ("0.8.5", "", True),
        ("0.8.5", "-e VLLM_USE_V1=0 ", False),
        ("0.9.2", "", False),
    ],
)
def test_only_v1_charges_the_whole_card(
    tmp_path: Path, release: str, variable: str, fires: bool
) -> None:
    text = "".join(
        f"docker run --gpus device=0 {variable}vllm/vllm-openai:v{release} --model own/{name} "
        "--gpu-memory-utilization 0.4\n"
        for name in "ab"
    )
    assert ("GATE014" in rules(judge(tmp_path, {"a.sh": text}))) == fires
