"""Every public config profiled on no memory, beside its closed forms: the transfer table's figures.

    python tests/bench/capacity_profiles.py CONFIGS

CONFIGS: a folder with one folder per model. Each is run at 2,048 and 8,192 tokens on one rank, on
one of four, and in two stages: the tensors must weigh what the config says, to the byte, and the
forward what formulas/activation.yaml says; the table has the worst of each kind of model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvbudget.model.config import Model, load_model
from kvbudget.model.forward import forward_memory
from kvbudget.profile.backends.tracked import TrackedBackend
from kvbudget.profile.phases import run_phases
from kvbudget.profile.policy import load_policy
from kvbudget.profile.runners import place_of
from kvbudget.profile.split import setting_of
from kvbudget.profile.types import Job

PHASES = ["baseline", "weights", "reset", "forward"]
SHARES = ((1, 1), (4, 1), (1, 2))
"""Tensor-parallel ranks and stages."""


def kind(model: Model) -> str:
    mixers = {layer.mixer.kind for layer in model.anatomy.layers}
    for name, words in (("linear", "linear attention"), ("mla", "latent attention")):
        if name in mixers:
            return words
    return "experts" if model.is_moe else "dense"


def one(folder: Path, model: Model, tokens: int, tp: int, pp: int) -> tuple[int, float]:
    """(bytes by which the weights miss, worst share by which a stage's forward misses)."""
    job = Job(str(folder), device="fake", tokens=tokens, tp=tp, pp=pp, capacity=2**60)
    policy, missed, worst = load_policy(job.policy), 0, 0.0
    for stage in range(pp):
        backend = TrackedBackend(job, model, policy, fake=True, rank=stage * tp)
        scene = backend.scene()
        record = run_phases(backend, "TP0", phases=PHASES)
        weights, ready, forward = (record.at(name) for name in ("weights", "reset", "forward"))
        if weights is None or ready is None or forward is None:
            raise SystemExit(f"{folder.name}: {record.failure}")
        wanted = model.weights_bytes(job.shares, pp, stage=place_of(job, stage * tp).stage).value
        missed += abs(weights.need("torch_allocated") - int(wanted))
        closed = sum(forward_memory(model, setting_of(job, policy, scene), tokens, stage=stage))
        measured = forward.need("torch_peak") - ready.need("torch_allocated")
        worst = max(worst, measured / closed - 1, key=abs)
    return missed, worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", type=Path)
    options = parser.parse_args()
    seen: dict[str, list[float]] = {}
    wrong = []
    for file in sorted(options.configs.glob("*/config.json")):
        model, worst = load_model(file.parent), 0.0
        if model.quantization_config is not None and model.quantisation is None:
            wrong.append(f"{file.parent.name}: the width of its weights is not stated")
            continue
        for tokens in (2048, 8192):
            for tp, pp in SHARES:
                missed, share = one(file.parent, model, tokens, tp, pp)
                worst = max(worst, share, key=abs)
                if missed:
                    wrong.append(f"{file.parent.name} TP{tp} PP{pp}: weights miss by {missed:,} B")
        seen.setdefault(kind(model), []).append(worst)
        print(f"{file.parent.name}: {kind(model)}, forward {100 * worst:+.3f} %", flush=True)
    for name, shares in sorted(seen.items()):
        print(f"{name}: {len(shares)} configs, worst forward {100 * max(shares, key=abs):+.2f} %")
    print(f"{sum(map(len, seen.values()))} configs weighed to the byte but for: {wrong or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
