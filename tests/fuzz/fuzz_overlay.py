"""Coverage-guided fuzzing of the YAML loader and of user's pattern files (make fuzz)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(
    include=["kvbudget.knowledge", "kvbudget.logs.selftest", "kvbudget.formula"]
):
    import nasty

    from kvbudget.errors import KvbudgetError
    from kvbudget.formula.check import check_file
    from kvbudget.knowledge.patterns import parse_file
    from kvbudget.knowledge.yamlfile import load_yaml
    from kvbudget.logs.selftest import check_patterns

ROOT = Path(__file__).parents[2]
LINES = [p.read_bytes()[:6000] for p in sorted((ROOT / "logparsers").glob("*/lines.yaml"))]
FORMULAS = [p.read_bytes()[:9000] for p in sorted((ROOT / "formulas").glob("*/pool-*.yaml"))]
ODD = b"&a *a << !!binary !!timestamp ? | > {{ [ ' \" # --- ... % @ `".split()
FILE = Path(tempfile.mkdtemp()) / "own.yaml"


def one_input(data: bytes) -> None:
    """A file of ours, damaged, or nothing but random YAML."""
    provider = atheris.FuzzedDataProvider(data)
    formulas = provider.ConsumeBool()
    text = provider.PickValueInList(FORMULAS if formulas else LINES)
    if provider.ConsumeIntInRange(0, 5) == 0:
        text = b" ".join(provider.PickValueInList(ODD) for _ in range(20)) + text[:400]
    text = nasty.damage(provider, text)
    FILE.write_bytes(text)
    load_yaml.cache_clear()
    try:
        load_yaml(FILE)
        if formulas:
            check_file(FILE)
            return
        parse_file(FILE)
        if provider.ConsumeIntInRange(0, 10) == 0:
            check_patterns([FILE])
    except KvbudgetError:
        pass


if __name__ == "__main__":
    nasty.run(one_input)
