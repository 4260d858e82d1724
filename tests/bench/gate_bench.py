"""A tree of 10,000 files (one in twenty with an engine), timed: `python tests/bench/gate_bench.py`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from kvbudget.gate.evaluate import Request, run
from kvbudget.gate.policy import Policy

FILES = 10_000
PLAIN = {
    "py": "import os\n\n\ndef f(x):\n    return x + 1\n" * 20,
    "yaml": "kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\ndata: {a: b}\n" * 1,
    "sh": "#!/bin/sh\nset -e\necho hello\n" * 10,
    "json": '{"a": [1, 2, 3]}\n',
}
ENGINES = {
    "py": "from vllm import LLM\nllm = LLM('own/a', gpu_memory_utilization=0.9)\n"
    + "x = 1\n" * 100,
    "yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.20.2\n"
    "    name: c\n    args: [--model, own/a, --gpu-memory-utilization, '0.9']\n",
    "sh": "vllm serve own/a --gpu-memory-utilization 0.9 \\\n  --max-model-len 8192\n",
    "json": '{"model": "own/a", "gpu_memory_utilization": 0.9, "max_model_len": 8192}\n',
}


def main() -> int:
    """Build the tree, run once, print the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        kinds = list(PLAIN)
        for number in range(FILES):
            kind = kinds[number % len(kinds)]
            path = root / f"d{number % 100}" / f"f{number}.{kind}"
            path.parent.mkdir(exist_ok=True)
            path.write_text((ENGINES if number % 20 < 4 and number % 5 == 0 else PLAIN)[kind])
        start = time.perf_counter()
        report = run(Request(root=root), Policy(base=root))
        seconds = time.perf_counter() - start
    print(f"{FILES} files, {len(report.invocations)} invocations: {seconds:.1f} s")
    return 0 if seconds < 20 else 1


if __name__ == "__main__":
    sys.exit(main())
