"""`cuda`: the phases on a real GPU, one rank per process. Needs a CUDA build of torch."""

from __future__ import annotations

import contextlib
import gc
import os
from typing import TYPE_CHECKING, Any

import torch

from kvbudget.errors import InputError
from kvbudget.profile import graphs
from kvbudget.profile.host import host_memory
from kvbudget.profile.plan import sampler_plan
from kvbudget.profile.protocols import OutOfMemory
from kvbudget.profile.runners import load_files, own_runner, place_of, torch_dtype
from kvbudget.profile.sampling import SamplerBuffers
from kvbudget.profile.types import Scene, Snapshot

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.profile.mirror import MirrorModel
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.types import Job

SORTED_FROM = 32
"""Bytes per logit from which a sampler variant is torch's own sort, run for real here."""
NO_MEMORY = ("out of memory", "ALLOC_FAILED", "Failed to CUDA calloc", "Failed to CUDA malloc")
NO_START = ("CUBLAS_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_INTERNAL_ERROR")
"""What a matrix library says that could not start: on a full device, for lack of memory."""
LITTLE = 512 * 2**20
"""Bytes free below which a library that cannot start has found no memory."""
WARM_UPS = 3
BLOCK_TOKENS = 16


class CudaBackend:
    """One rank on the one visible device. The parent sets CUDA_VISIBLE_DEVICES to its UUID."""

    def __init__(self, job: Job, model: Model, policy: Policy, *, rank: int, port: int) -> None:
        if not torch.cuda.is_available():
            built = torch.version.cuda
            raise InputError(
                "PyTorch finds no CUDA device",
                (f"this torch wants CUDA {built}: is the driver that new, the device visible?" if built
                 else "this torch is a CPU build") + "; --device cpu and --device fake need no GPU",
            )  # fmt: skip
        self.job, self.model, self.policy, self.rank, self.port = job, model, policy, rank, port
        self.place, self.ranks = place_of(job, rank), job.tp * job.pp
        self.device = "cuda:0"
        self.runner: MirrorModel | None = None
        self.integrated = self._failed = False
        self._peak: int | None = None
        self._extra: dict[str, int] = {}
        self._notes: list[str] = []
        self._nvml = contextlib.ExitStack()
        self._reader: Any = None
        self._uuid = os.environ.get("CUDA_VISIBLE_DEVICES", "0")

    def scene(self) -> Scene:
        props = torch.cuda.get_device_properties(0)
        self.integrated = bool(getattr(props, "is_integrated", False))
        notes = []
        config = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF")
        if config:
            notes.append(f"allocator settings in force: {config}")
        if self.integrated:
            notes.append("memory is shared with the host: free is what the host has available")
        return Scene(
            "cuda", props.name, None, int(props.total_memory), None, None,
            integrated=self.integrated, sm_count=props.multi_processor_count,
            compute_capability=f"{props.major}.{props.minor}", notes=tuple(notes),
        )  # fmt: skip

    def run(self, phase: str) -> None:
        work = getattr(self, f"_{phase}", None)
        if work is None:
            return
        try:
            with torch.no_grad():
                work()
            torch.cuda.synchronize()
        except RuntimeError as exc:
            self._failed, free = True, None
            with contextlib.suppress(RuntimeError):
                free = int(torch.cuda.mem_get_info(0)[0])
            said = _out_of_memory(exc, free)
            if said is None:
                raise
            raise OutOfMemory(_requested(said), free, said.partition("\n")[0]) from exc

    def _context(self) -> None:
        from kvbudget.gpu.nvml import open_nvml

        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.empty(1, device=self.device)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        with contextlib.suppress(InputError):
            self._reader = self._nvml.enter_context(open_nvml())

    def _nccl(self) -> None:
        if self.ranks == 1:
            return
        import torch.distributed as dist

        dist.init_process_group(
            "nccl", init_method=f"tcp://127.0.0.1:{self.port}", rank=self.rank,
            world_size=self.ranks,
        )  # fmt: skip
        dist.all_reduce(torch.ones(1, device=self.device))
        self._tidy()

    def _handles(self) -> None:
        """cuBLAS and cuBLASLt create their handles and workspaces at the first product."""
        small = torch.ones(16, 16, device=self.device, dtype=torch_dtype(self.model))
        torch.mm(small, small)
        torch.nn.functional.linear(small, small, small[0])
        del small
        torch.cuda.synchronize()

    def _baseline(self) -> None:
        self._tidy()

    def _weights(self) -> None:
        job, model = self.job, self.model
        self.runner = own_runner(
            job, model, self.policy, self.place, device=self.device, on_card=True
        )
        if job.load == "dummy":
            self.runner.load()
        else:
            self._notes.append(
                load_files(self.runner, job, model, self.place, device=self.device, read=True)
            )
        self.runner.hold_tables()

    def _reset(self) -> None:
        self._tidy()
        self._peak = None
        torch.cuda.reset_peak_memory_stats()

    def _forward(self) -> None:
        assert self.runner is not None
        torch.cuda.reset_peak_memory_stats()
        self.runner.forward(self.job.tokens)

    def _sampler(self) -> None:
        assert self.runner is not None
        torch.cuda.reset_peak_memory_stats()
        if self.policy.consumed == "load":
            return
        props = torch.cuda.get_device_properties(0)
        plan = sampler_plan(
            self.job, self.model, self.policy, sm_count=props.multi_processor_count,
            compute_capability=f"{props.major}.{props.minor}",
        )  # fmt: skip
        self._notes += plan.notes
        buffers = SamplerBuffers(
            plan.per_logit,
            plan.per_row,
            plan.rows,
            float_copy=plan.float_copy,
            real_sort=plan.per_logit >= SORTED_FROM,
        )
        self.runner.sample(self.job.tokens, min(self.job.requests, self.job.tokens), buffers)

    def _after(self) -> None:
        self._peak = int(torch.cuda.max_memory_allocated())
        self._tidy()

    def _graphs(self) -> None:
        """Capture decode steps, largest first, into a pool that is thrown away."""
        if not self.job.graphs or self.policy.consumed == "load":
            return
        assert self.runner is not None
        sizes = graphs.ladder(self.job.requests)[::-1]
        cache = self.runner.cache(sizes[0], BLOCK_TOKENS)
        # Warm up and capture on one stream, as engines do: cuBLAS keeps a workspace per stream,
        # and one that first appears inside a capture would be counted as the graph's.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self.runner.decode(cache)
                cache.positions.zero_()
        torch.cuda.current_stream().wait_stream(stream)
        self._tidy()
        captured, samples, pool = [], [], torch.cuda.graph_pool_handle()
        for size in sizes if self.job.all_graphs else sizes[:2]:
            before = int(torch.cuda.mem_get_info(0)[0])
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                self.runner.decode(cache.first(size))
            torch.cuda.synchronize()
            captured.append(graph)
            samples.append(before - int(torch.cuda.mem_get_info(0)[0]))
        self._extra["graph_memory"] = graphs.estimate(samples[:2], len(sizes))
        self._extra["graphs_captured"] = len(samples)
        if self.job.all_graphs:
            self._extra["graph_memory_full"] = sum(samples)
        for graph in captured:
            graph.reset()
        captured.clear()
        del pool, cache
        self._tidy()

    def _free(self) -> None:
        assert self.runner is not None
        self.runner.unload()
        self.runner = None
        self._tidy()

    def _tidy(self) -> None:
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()

    def read(self, phase: str) -> Snapshot:
        free, total = (int(n) for n in torch.cuda.mem_get_info(0))
        if self.integrated:
            free = host_memory()[1] or free
        used = None
        if self._reader is not None:
            with contextlib.suppress(InputError):
                key = self._uuid if not self._uuid.isdigit() else int(self._uuid)
                used = self._reader.used(key)
        extra, self._extra = self._extra, {}
        peak = int(torch.cuda.max_memory_allocated()) if self._peak is None else self._peak
        return Snapshot(
            phase, free, total, int(torch.cuda.memory_allocated()),
            int(torch.cuda.memory_reserved()), peak, used, None, extra,
        )  # fmt: skip

    def notes(self) -> list[str]:
        return list(dict.fromkeys(self._notes))

    def close(self) -> None:
        self._nvml.close()
        # After a failure the other ranks may never answer: the process ends with its group.
        if self.ranks > 1 and not self._failed and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _out_of_memory(error: BaseException | None, free: int | None) -> str | None:
    """What an error says about memory that ran out, or None. free: bytes of the device, if known.

    Not only torch's allocator can fail: so do the context, cuBLAS and NCCL, each with an error
    of its own, and one during a capture is hidden behind the capture's.
    """
    words = NO_MEMORY + (NO_START if free is not None and free < LITTLE else ())
    while error is not None:
        said = str(error)
        if isinstance(error, torch.OutOfMemoryError) or any(word in said for word in words):
            return said
        error = error.__context__
    return None


def _requested(message: str) -> int | None:
    """Bytes of "Tried to allocate 3.50 GiB", as far as its digits go."""
    from kvbudget.units import parse_size

    _, found, rest = message.partition("Tried to allocate ")
    if not found:
        return None
    try:
        return parse_size("".join(rest.split(". ")[0].split()[:2]).rstrip("."))
    except InputError:
        return None
