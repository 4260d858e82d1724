"""Charts that loop, trim blanks and hand themselves on; and command lines that start nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvbudget.gate.invocation import record
from tests.unit.gate_files import judge

if TYPE_CHECKING:
    from pathlib import Path

VALUES = """\
    image: vllm/vllm-openai:v0.9.2
    len: 2048
    models:
      a: {name: own/a, share: 0.3}
      b: {name: own/b, share: 0.2}
      c: {name: own/c, share: 0.1}
"""
LOOP = """\
    {{- $top := . -}}
    {{- range $key, $m := .Values.models }}
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: own}
    spec:
      template:
        spec:
          containers:
          - name: own
            image: "{{ $top.Values.image }}"
            WORDS
    {{- end }}
"""
DIRECT = """args:
            - --model={{ $m.name }}
            - --max-model-len={{ $top.Values.len }}
            - --gpu-memory-utilization={{ $m.share }}"""
COMMAND = """command:
            - vllm
            - serve
            - {{ $m.name }}
            - --max-model-len={{ $top.Values.len }}
            - --gpu-memory-utilization={{ $m.share }}"""


@pytest.mark.parametrize("words", [DIRECT, COMMAND], ids=["args", "command"])
def test_a_loop_writes_one_process_each_time(tmp_path: Path, words: str) -> None:
    files = {"Chart.yaml": "name: own\n", "values.yaml": VALUES}
    report = judge(tmp_path, {**files, "templates/a.yaml": LOOP.replace("WORDS", words)})
    found = {inv.model: record(inv) for inv in report.invocations}
    assert sorted(found) == ["own/a", "own/b", "own/c"]
    assert len({one["line"] for one in found.values()}) == 3
    for name, share in (("own/a", 0.3), ("own/b", 0.2), ("own/c", 0.1)):
        assert found[name]["flags"] == {"max_model_len": 2048, "gpu_memory_utilization": share}
        assert found[name]["engine_version"] == "0.9.2"


def test_trimmed_blanks_keep_a_command_on_one_line(tmp_path: Path) -> None:
    helper = """\
        {{- define "own.words" -}}
        --max-model-len {{ .Values.len }} \\
        {{- if .Values.models }}
        --gpu-memory-utilization {{ .Values.models.a.share }} \\
        {{- end }}
        --max-num-seqs 8
        {{- end }}
        """
    pod = """\
        kind: Pod
        spec:
          containers:
          - name: own
            image: "{{ .Values.image }}"
            command: [sh, -c]
            args:
            - |
              exec vllm serve own/a \\
              {{- include "own.words" . | nindent 14 }}
        """
    files = {"Chart.yaml": "name: own\n", "values.yaml": VALUES}
    report = judge(tmp_path, {**files, "templates/_helpers.tpl": helper, "templates/a.yaml": pod})
    (inv,) = report.invocations
    assert inv.flags == {"max_model_len": 2048, "gpu_memory_utilization": 0.3, "max_num_seqs": 8}


def test_a_helper_is_given_the_chart_in_a_dict(tmp_path: Path) -> None:
    helper = """\
        {{- define "own.words" -}}
        [--model, {{ .m.name }}, --max-model-len, "{{ .top.Values.len }}"]
        {{- end }}
        """
    pod = """\
        kind: Pod
        spec:
          containers:
          - image: {{ .Values.image }}
            args: {{ include "own.words" (dict "top" . "m" .Values.models.b) }}
        """
    files = {"Chart.yaml": "name: own\n", "values.yaml": VALUES}
    report = judge(tmp_path, {**files, "templates/_helpers.tpl": helper, "templates/a.yaml": pod})
    (inv,) = report.invocations
    assert (inv.model, inv.flags) == ("own/b", {"max_model_len": 2048})


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve --help",
        "vllm serve --help=page",
        "python -m vllm.entrypoints.openai.api_server -h | less",
        "docker run --rm vllm/vllm-openai:v0.9.2 --help",
        "docker run --rm lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --help || true",
    ],
)
def test_a_question_starts_nothing(tmp_path: Path, line: str) -> None:
    assert judge(tmp_path, {"a.sh": f"{line}\n"}).invocations == []


def test_no_report_repeats_a_secret(tmp_path: Path) -> None:
    report = judge(tmp_path, {"a.sh": "KEY=own-1234\nvllm serve own/a --api-key $KEY --port 1\n"})
    (inv,) = report.invocations
    assert record(inv)["other_flags"] == {"api_key": "***", "port": 1}


def test_a_server_of_kserve_loads_its_model_id(tmp_path: Path) -> None:
    text = """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        spec:
          predictor:
            model:
              modelFormat: {name: huggingface}
              args: [--model_name=own, --model_id=own/k, --backend=vllm, --max-model-len=512]
        """
    (inv,) = judge(tmp_path, {"a.yaml": text}).invocations
    assert inv.model == "own/k"


@pytest.mark.parametrize(
    ("group", "flagged"),
    [
        ("multinode: {nodeCount: 2}", False),
        ("leaderWorkerPattern: {size: 2}", False),
        ("x: 2", True),
    ],
)
def test_ranks_may_span_the_pods_of_a_group(tmp_path: Path, group: str, flagged: bool) -> None:
    text = f"""\
        apiVersion: own/v1
        kind: Own
        spec:
          roles:
          - {group}
            template:
              spec:
                containers:
                - name: own
                  image: vllm/vllm-openai:v0.9.2
                  args: [--model, own/a, -tp, "4", -pp, "2"]
                  resources: {{limits: {{nvidia.com/gpu: 4}}}}
        """
    report = judge(tmp_path, {"a.yaml": text})
    assert ("GATE038" in [finding.rule for finding in report.findings]) is flagged


def test_a_helper_that_walks_a_map_of_arguments(tmp_path: Path) -> None:
    helper = """\
        {{- define "own.words" -}}
        {{- $held := dict }}
        {{- range $k, $v := .Values.given }}
          {{- $_ := set $held $k $v }}
        {{- end }}
        {{- $keys := keys $held | sortAlpha }}
        {{- range $i, $k := $keys }}
          {{- $v := index $held $k }}
          {{- if eq (kindOf $v) "bool" }}
            {{- if $v }} --{{ $k }}{{ end }}
          {{- else }} --{{ $k }} {{ $v }}
          {{- end }}
          {{- if eq (add1 $i) (len $keys) }} --port 1{{ end }}
        {{- end }}
        {{- end }}
        """
    pod = """\
        kind: Pod
        spec:
          containers:
          - image: vllm/vllm-openai:v0.9.2
            command: [sh, -c, 'vllm serve own/a {{ include "own.words" . }}']
        """
    values = "given: {max-num-seqs: 6, enforce-eager: true, enable-lora: false}\n"
    files = {"Chart.yaml": "name: own\n", "values.yaml": values}
    report = judge(tmp_path, {**files, "templates/_helpers.tpl": helper, "templates/a.yaml": pod})
    (inv,) = report.invocations
    assert inv.flags == {"max_num_seqs": 6, "enforce_eager": True}
    assert inv.get("port") == 1
