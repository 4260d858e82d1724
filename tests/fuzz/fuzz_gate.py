"""Coverage-guided fuzzing of every reader of the gate, its rules and its reports (make fuzz)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["kvbudget.gate"]):
    import nasty

    from kvbudget.errors import KvbudgetError
    from kvbudget.gate.evaluate import Request, run
    from kvbudget.gate.policy import Policy, load
    from kvbudget.render.gate import as_markdown, as_text
    from kvbudget.render.junit import as_junit
    from kvbudget.render.sarif import as_sarif

LINE = "vllm serve own/model --gpu-memory-utilization 0.97 --max-model-len 64k -tp 2"
SGL = "python -m sglang.launch_server --model-path own/m --mem-fraction-static 0.9 --tp-size 2"
SEEDS: dict[str, str] = {
    "run.sh": f"#!/bin/bash\nset -e\nU=${{1:-0.9}}\nif [ -n \"$A\" ]; then\n  {LINE} \\\n    --swap-space $((4*2))\n"
    f"fi\nfor n in 1 2; do {SGL} --port $n; done\ncat > a.yaml <<EOF\nmodel: own/m\nEOF\n",
    "Dockerfile": f"FROM vllm/vllm-openai:v0.9.2 AS a\nARG U=0.9\nENV V=$U\nCMD [\"--model\", \"own/m\"]\nRUN {LINE}\n",
    "compose.yaml": "services:\n  a: &a\n    image: vllm/vllm-openai:v0.9.2\n    shm_size: 1gb\n    command: --model own/m"
    " --gpu-memory-utilization ${U:-0.9}\n    environment: {A: b}\n  b:\n    <<: *a\n    command: [--model, m]\n",
    "pod.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  replicas: 1\n  template:\n    spec:\n"
    "      containers:\n      - name: v\n        image: vllm/vllm-openai:v0.9.2\n        args: [--model, own/m,"
    " --gpu-memory-utilization, '0.95']\n        env: [{name: A, value: b}]\n        resources:"
    " {limits: {nvidia.com/gpu: 1, memory: 8Gi}}\n      volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]\n",
    "values.yaml": "vllm:\n  image: vllm/vllm-openai:v0.9.2\n  engineArgs: {gpuMemoryUtilization: 0.9}\n  extraArgs: [--max-model-len, 8k]\n",
    "task.json": '{"family": "a", "containerDefinitions": [{"name": "v", "image": "vllm/vllm-openai:v0.9.2", "memory": 8192,'
    ' "command": ["--model", "own/m", "--gpu-memory-utilization", "0.9"], "resourceRequirements": [{"type": "GPU", "value": "1"}]}]}',
    "book.ipynb": '{"cells": [{"cell_type": "code", "source": ["!' + LINE + '\\n", "import vllm\\n"]}], "nbformat": 4}',
    "serve.py": "import vllm\nfrom vllm import LLM\nU = 0.9\nARGS = dict(max_model_len=8192)\nm = LLM('own/m', gpu_memory_utilization=U + 0.05, **ARGS)\n"
    f"import subprocess\nsubprocess.run({LINE.split()!r})\n",
    "job.hcl": 'job "v" { task "v" { config { image = "vllm/vllm-openai:v0.9.2"\n args = ["--model", "own/m", "--gpu-memory-utilization", "${var.u}"]\n'
    " shm_size = 1024 } resources { memory = 8192 } } }\n",
    "main.tf": f'variable "u" {{ default = 0.9 }}\nresource "x" "v" {{ user_data = <<EOT\n{LINE}\nEOT\n}}\n',
    "v.service": f"[Unit]\nA=b\n[Service]\nEnvironment=\"U=0.9\"\nMemoryMax=8G\nExecStart=/usr/bin/{LINE} \\\n  --swap-space 4\n",
    "v.container": "[Container]\nImage=vllm/vllm-openai:v0.9.2\nShmSize=1g\nExec=--model own/m --gpu-memory-utilization 0.9\n",
    "Makefile": f"U ?= 0.9\nV := $(U)\nserve: a\n\t@{LINE} --seed $(V)\n",
    "justfile": f"u := \"0.9\"\nserve m=\"a\":\n  {LINE} --seed {{{{u}}}}\n",
    "run.ps1": "$u = 0.9\n" + LINE.replace(" -tp", " `\n  -tp") + "\n",
    "job.sbatch": f"#!/bin/bash\n#SBATCH --gres=gpu:h100:2\n#SBATCH --mem=64G\nsrun {LINE}\n",
    "play.yml": f"- hosts: all\n  vars: {{u: 0.9}}\n  tasks:\n  - shell: {LINE} --seed {{{{ u }}}}\n  - command: {{cmd: '{SGL}'}}\n",
    ".gitlab-ci.yml": f"variables: {{U: '0.9'}}\njob:\n  script:\n  - {LINE}\n",
    "ray.yaml": "applications:\n- args:\n    llm_configs:\n    - model_loading_config: {model_id: own/m}\n      engine_kwargs: {gpu_memory_utilization: 0.9, max_model_len: 8192} # vllm\n",
    "t.yaml.j2": f"command: {LINE} --seed {{{{ u | default(3) }}}}\n{{% if a %}}\nb: vllm\n{{% endif %}}\n",
    "serving.properties": "option.rolling_batch=vllm\noption.gpu_memory_utilization=0.9\noption.tensor_parallel_degree=2\n",
    "README.md": f"# a\n```bash\n{LINE}\n```\n",
    "kvbudget.yaml": "version: 1\ngate:\n  fail_on: warning\n  rules: {GATE010: {level: error}, GATE011: off}\n  defaults: {vllm: 0.9.2}\n"
    "  hosts: [{match: '**', gpu: h100-80gb, node_ram: 512GB}]\n  paths: [{match: a, ignore: [GATE010], reason: b}]\n",
}  # fmt: skip
ROOT = Path(tempfile.mkdtemp())


def one_input(data: bytes) -> None:
    """One damaged file of a kind the gate reads, to a report."""
    provider = atheris.FuzzedDataProvider(data)
    name = provider.PickValueInList(list(SEEDS))
    text = SEEDS[name]
    for _ in range(provider.ConsumeIntInRange(0, 2)):
        old = provider.PickValueInList(
            ["0.97", "0.9", "own/m", "64k", "vllm", "2", "1", "8Gi", "a"]
        )
        new = str(provider.PickValueInList(list(nasty.NASTY)))
        text = text.replace(old, new, provider.ConsumeIntInRange(1, 2))
    file = ROOT / name
    file.write_bytes(nasty.damage(provider, text.encode("utf-8", "surrogatepass")))
    try:
        if name == "kvbudget.yaml":
            load(file, ROOT)
            return
        report = run(Request(root=ROOT, paths=[name]), Policy(base=ROOT))
        write = provider.PickValueInList([as_text, as_markdown, as_junit, as_sarif])
        write(report).encode("utf-8", "backslashreplace")
    except KvbudgetError:
        pass
    finally:
        file.unlink()


if __name__ == "__main__":
    nasty.run(one_input)
