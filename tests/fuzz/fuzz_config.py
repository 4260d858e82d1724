"""Coverage-guided fuzzing of the config.json reader and the arithmetic behind it (make fuzz)."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "unit")]

with atheris.instrument_imports(include=["kvbudget.model", "kvbudget.jsonfile", "kvbudget.derive"]):
    import model_configs
    import nasty

    from kvbudget.derive.build import Inputs, build
    from kvbudget.derive.document import document
    from kvbudget.errors import KvbudgetError
    from kvbudget.jsonfile import parse_object
    from kvbudget.model.config import model_from_config

CONFIGS = [c for c in vars(model_configs).values() if isinstance(c, dict) and "model_type" in c]
FILE = Path(tempfile.mkdtemp()) / "config.json"


def one_input(data: bytes) -> None:
    """A spoilt config of a real family, or its damaged text, to the pool it would have."""
    provider = atheris.FuzzedDataProvider(data)
    config = provider.PickValueInList(CONFIGS)
    text = json.dumps(nasty.spoil(provider, config)).encode()
    if provider.ConsumeIntInRange(0, 3) == 0:
        text = nasty.damage(provider, text)
    ranks = provider.PickValueInList([1, 2, 3, 8])
    try:
        model = model_from_config(parse_object(text, "config.json"), name="m")
        model.layer_groups(ranks)
        model.weights_bytes(ranks)
        model.state_bytes_per_request()
        if provider.ConsumeIntInRange(0, 60):
            return
        FILE.write_bytes(text)
        for result in build(Inputs(tokens=(str(FILE),), engine="both", gpu="h200")):
            json.dumps(document(result), allow_nan=False)
    except KvbudgetError:
        pass


if __name__ == "__main__":
    nasty.run(one_input)
