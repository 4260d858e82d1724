"""`cpu` and `fake`: the phases with real tensors or with none, counted by a storage tracker."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

import torch

from kvbudget.profile.host import host_memory
from kvbudget.profile.plan import sampler_plan
from kvbudget.profile.protocols import OutOfMemory
from kvbudget.profile.runners import Runner, load_files, own_runner, place_of, torch_dtype
from kvbudget.profile.sampling import SamplerBuffers
from kvbudget.profile.tracker import LiveBytes
from kvbudget.profile.types import Scene, Snapshot

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.profile.mirror import MirrorModel
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.types import Job


class TrackedBackend:
    """One rank whose allocator is the tracker: nothing but tensors exists on this device."""

    def __init__(self, job: Job, model: Model, policy: Policy, *, fake: bool, rank: int) -> None:
        self.job, self.policy, self.fake, self.model = job, policy, fake, model
        self.place, self.device = place_of(job, rank), "meta" if fake else "cpu"
        total, available = host_memory()
        self._available = available
        self.total = job.capacity or total
        self.other = 0
        if not fake and job.capacity is None and available is not None:
            self.other = total - available
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(torch.no_grad())
        if fake and job.runner == "hf":
            # transformers looks at values, which tensors on the meta device cannot answer.
            from torch._subclasses.fake_tensor import FakeTensorMode

            self._stack.enter_context(FakeTensorMode())
            self.device = "cpu"
        limit = self.total - self.other if job.capacity or not fake else None
        self.tracker = self._stack.enter_context(LiveBytes(limit))
        self.runner: Runner | None = None
        self.own: MirrorModel | None = None
        self._notes: list[str] = []
        self._extra: dict[str, int] = {}

    def scene(self) -> Scene:
        kind = "fake" if self.fake else "cpu"
        notes = (
            ()
            if self.job.capacity
            else ("this machine's memory stands in for a card; --gpu NAME takes that card's",)
        )
        return Scene(kind, self.job.card, None, self.total, 0, self.other, notes=notes)

    def run(self, phase: str) -> None:
        work = getattr(self, f"_{phase}", None)
        if work is None:
            return
        try:
            work()
        except MemoryError as exc:
            raise OutOfMemory(
                None, self.total - self.other - self.tracker.reserved, str(exc)
            ) from exc
        except RuntimeError as exc:
            if "allocate" not in str(exc) and "out of memory" not in str(exc).lower():
                raise
            raise OutOfMemory(
                None, self.total - self.other - self.tracker.reserved, str(exc)
            ) from exc

    def _guard(self, wanted: int) -> None:
        """Real tensors: refuse before the kernel kills somebody."""
        if self.fake or self._available is None:
            return
        left = self._available - self.tracker.reserved
        if wanted > left:
            raise OutOfMemory(wanted, left, "this machine has not that much memory free")

    def _weights(self) -> None:
        job, model, place = self.job, self.model, self.place
        wanted = model.weights_bytes(job.shares, job.pp, stage=place.stage)
        self._guard(int(wanted.value))
        if job.runner == "hf":
            from kvbudget.profile.hf import HfRunner

            self.runner = HfRunner(job.model, dtype=torch_dtype(model), device=self.device)
        else:
            self.runner = self.own = own_runner(
                job, model, self.policy, place, device=self.device, once=self.fake
            )
        if job.load == "dummy" or self.own is None:
            self.runner.load(fill=not self.fake)
        else:
            self._notes.append(
                load_files(self.own, job, model, place, device=self.device, read=not self.fake)
            )

    def _reset(self) -> None:
        gc.collect()
        self.tracker.reset_peak()

    def _forward(self) -> None:
        assert self.runner is not None
        self._guard(self.job.tokens * self.model.hidden_size * 4)
        self.tracker.reset_peak()
        self.runner.forward(self.job.tokens)

    def _sampler(self) -> None:
        assert self.runner is not None
        self.tracker.reset_peak()
        if self.policy.consumed == "load":
            return
        plan = sampler_plan(self.job, self.model, self.policy)
        self._notes += plan.notes
        requests = min(self.job.requests, self.job.tokens)
        wanted = requests * self.model.vocab_size * (6 + plan.per_logit)
        self._guard(wanted)
        extra = SamplerBuffers(plan.per_logit, plan.per_row, plan.rows, float_copy=plan.float_copy)
        self.runner.sample(self.job.tokens, requests, extra)

    def _after(self) -> None:
        gc.collect()

    def _graphs(self) -> None:
        """No graphs exist here; decode steps are measured where they are asked for."""
        if not self.job.decode_steps or self.own is None:
            return
        start = self.tracker.allocated
        cache = self.own.cache(min(self.job.requests, 8), self.job.decode_steps)
        self._extra["decode_cache"] = self.tracker.allocated - start
        held = self.tracker.allocated
        self.tracker.reset_peak()
        for _ in range(self.job.decode_steps):
            self.own.decode(cache)
        self._extra["decode_peak"] = self.tracker.peak - held

    def _free(self) -> None:
        assert self.runner is not None
        self.runner.unload()
        self.runner = self.own = None
        gc.collect()
        left = self.tracker.allocated
        if left:
            self._notes.append(f"{left:,} B were still alive after everything was freed")

    def read(self, phase: str) -> Snapshot:
        extra, self._extra = self._extra, {}
        held = self.tracker
        return Snapshot(
            phase, self.total - self.other - held.reserved, self.total, held.allocated,
            held.reserved, held.peak, None, None, extra,
        )  # fmt: skip

    def notes(self) -> list[str]:
        return list(dict.fromkeys(self._notes))

    def close(self) -> None:
        self._stack.close()
