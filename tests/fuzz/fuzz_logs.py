"""Coverage-guided fuzzing of the log commands: no bytes may raise (make fuzz).

usage: python tests/fuzz/fuzz_logs.py [libFuzzer options]; needs `pip install atheris`.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["kvbudget.logs", "kvbudget.triage"]):
    import nasty

    from kvbudget.knowledge.patterns import load_patterns
    from kvbudget.logs.collect import read_log
    from kvbudget.logs.explain import explain
    from kvbudget.triage.report import document
    from kvbudget.triage.verdict import judge

PATTERNS = load_patterns()
SEEDS = [sample.text for p in PATTERNS.patterns for sample in p.entry.samples]


def one_input(data: bytes) -> None:
    """Random bytes around a known line, so that the fuzzer starts behind the literals."""
    provider = atheris.FuzzedDataProvider(data)
    seed = SEEDS[provider.ConsumeIntInRange(0, len(SEEDS) - 1)].encode()
    cut = provider.ConsumeIntInRange(0, len(seed))
    text = seed[:cut] + provider.ConsumeBytes(4096) + seed[cut:]
    reading = read_log(io.BytesIO(text), PATTERNS, name="-")
    explain(reading, bytes_per_block=2**21)
    document(reading, judge(reading), None)


if __name__ == "__main__":
    nasty.run(one_input)
