"""Who runs the forward: our own mirror of an engine, or transformers; and with which weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

from kvbudget.model.eras import Setting
from kvbudget.model.estimate import rope_cache_bytes
from kvbudget.model.forward import profile_pass
from kvbudget.model.shapes import model_shape
from kvbudget.profile.shards import Place, shard, stored

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.profile.mirror import MirrorModel
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.sampling import SamplerBuffers
    from kvbudget.profile.types import Job

DTYPES = {2: torch.bfloat16, 4: torch.float32}


class Runner(Protocol):
    """What the phases need of a model; sizes in rows."""

    def load(self, *, fill: bool = True) -> None: ...

    def unload(self) -> None: ...

    def forward(self, tokens: int) -> None: ...

    def sample(self, tokens: int, requests: int, extra: SamplerBuffers) -> None: ...


def torch_dtype(model: Model) -> torch.dtype:
    """The dtype weights are held in; float16 stays float16."""
    return torch.float16 if model.dtype in ("float16", "half") else DTYPES[model.dtype_bytes]


def place_of(job: Job, rank: int) -> Place:
    """Where the process numbered `rank` stands: tensor ranks count fastest."""
    return Place(rank % job.tp, job.tp, rank // job.tp, job.pp, job.ep)


def own_runner(
    job: Job, model: Model, policy: Policy, place: Place, *, device: str, once: bool = False,
    on_card: bool = False,
) -> MirrorModel:  # fmt: skip
    """Our own runner for one rank, nothing loaded yet.

    on_card: with what only a real GPU is measured with, the fused attention kernel and the rotary
    tables; elsewhere the weights are the checkpoint's, to the byte.
    """
    from kvbudget.profile.mirror import MirrorModel

    setting = Setting(policy.engine, policy.version, tp=job.tp, pp=job.pp)
    return MirrorModel(
        model_shape(model, job.shares, pp=job.pp, stage=place.stage),
        dtype=torch_dtype(model), device=device, once=once, real_attention=on_card,
        tables=rope_cache_bytes(model) if on_card else 0,
        how=profile_pass(model, setting),
    )  # fmt: skip


def load_files(
    runner: MirrorModel, job: Job, model: Model, place: Place, *, device: str, read: bool
) -> str:
    """Put the checkpoint's own tensors where the runner's would be; a sentence about them.

    The forward then runs on stand-in products, whose buffers are the same. Raises InputError
    where there are no files, or one is damaged.
    """
    from kvbudget.profile.stream import stream

    path = Path(job.model)
    folder = path if path.is_dir() else path.parent
    tensors = stored(model)
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if tensor.dtype in ("F32", "F16", "BF16"):
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.bytes
    cast = None if model.quantization_config or not sizes else max(sizes, key=sizes.__getitem__)
    mine = shard(tensors, model, place)
    runner.weights = stream(
        folder, mine, dtype=torch_dtype(model), cast=cast, device=device, read=read
    )
    held = sum(w.numel() * w.element_size() for w in runner.weights.values())
    skipped = f", {mine.skipped} skipped (unused or prediction layers)" if mine.skipped else ""
    files = len({tensor.file for tensor in tensors})
    return f"weights: {len(tensors)} tensors of {files} file(s){skipped}, {held:,} B on this rank"
