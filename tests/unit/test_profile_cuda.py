"""The CUDA backend's own lines on a stand-in for `torch.cuda`: the tracker is the allocator.

It shows that the phases run in order, add up and fail as they should. What a GPU needs it cannot
show: that is tests/gpu/run.sh.
"""

import contextlib
import functools
import inspect
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kvbudget.errors import InputError  # noqa: E402
from kvbudget.model.config import load_model  # noqa: E402
from kvbudget.model.estimate import rope_cache_bytes  # noqa: E402
from kvbudget.profile.backends import cuda  # noqa: E402
from kvbudget.profile.device import BUNDLED  # noqa: E402
from kvbudget.profile.judge import judge  # noqa: E402
from kvbudget.profile.phases import run_phases  # noqa: E402
from kvbudget.profile.policy import load_policy  # noqa: E402
from kvbudget.profile.tracker import LiveBytes  # noqa: E402
from kvbudget.profile.types import Job, Record  # noqa: E402

pytestmark = pytest.mark.torch
TINY = BUNDLED / "tiny"
TOTAL, MIB = 2 * 2**30, 2**20


def like(real, stand_in):
    """The stand-in, refusing what the real function of this torch would not take."""
    try:
        signature = inspect.signature(real.__init__ if inspect.isclass(real) else real)
    except ValueError:  # written in C: no signature
        return stand_in
    self_too = (None,) if inspect.isclass(real) else ()

    @functools.wraps(stand_in, updated=())
    def checked(*args, **kwargs):
        signature.bind(*self_too, *args, **kwargs)
        return stand_in(*args, **kwargs)

    return checked


class Card:
    """A device of TOTAL bytes; a graph costs 3 MiB of the driver's, as long as it lives.

    neighbour: bytes that somebody else holds from the start.
    """

    def __init__(self, tracker, neighbour=0):
        self.tracker, self.graphs, self.captured_on = tracker, 0, []
        self.neighbour = neighbour

    def install(self, monkeypatch, integrated):
        tracker, free = self.tracker, lambda *_: (TOTAL - self.used(), TOTAL)
        props = SimpleNamespace(name="stand-in", total_memory=TOTAL, multi_processor_count=4,
                                major=9, minor=0, is_integrated=integrated)  # fmt: skip
        card = self

        class Graph:
            def reset(self):
                card.graphs -= 3 * MIB

        @contextlib.contextmanager
        def capture(graph, *, pool, stream):
            assert pool == "pool"
            self.captured_on.append(stream)
            self.graphs += 3 * MIB
            yield

        for name, value in {
            "is_available": lambda: True, "get_device_properties": lambda _: props,
            "init": lambda: None, "synchronize": lambda: None, "empty_cache": lambda: None,
            "mem_get_info": free, "memory_allocated": lambda: tracker.reserved,
            "memory_reserved": lambda: tracker.reserved,
            "max_memory_allocated": lambda: tracker.peak_reserved,
            "reset_peak_memory_stats": tracker.reset_peak,
            "Stream": lambda: SimpleNamespace(wait_stream=lambda _: None),
            "current_stream": lambda: SimpleNamespace(wait_stream=lambda _: None),
            "stream": lambda _: contextlib.nullcontext(), "graph_pool_handle": lambda: "pool",
            "CUDAGraph": Graph, "graph": capture,
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, like(getattr(torch.cuda, name), value))

    def used(self):
        return self.tracker.reserved + self.graphs + self.neighbour


@pytest.fixture
def profile(monkeypatch):
    """Run all phases of a job: (record, card)."""

    def run(policy="vllm@0.33.0", break_phase=None, error=None, integrated=0, neighbour=0, **job):
        with LiveBytes() as tracker:
            card = Card(tracker, neighbour)
            card.install(monkeypatch, integrated)
            job = Job(str(TINY), device="cuda", policy=policy, tokens=256, requests=8, **job)
            backend = cuda.CudaBackend(job, load_model(TINY), load_policy(policy), rank=0, port=0)
            backend.device = "cpu"
            if break_phase:

                def broken():
                    raise error

                monkeypatch.setattr(backend, f"_{break_phase}", broken)
            scene = backend.scene()
            phases = ["context", "nccl", "handles", "baseline", "weights", "reset", "forward",
                      "sampler", "after", "graphs", "free"]  # fmt: skip
            rank = run_phases(backend, "TP0", phases=phases)
        return Record(job, scene, [rank]), card

    return run


@pytest.mark.parametrize("policy", ["vllm@0.10.2", "vllm@0.16.0", "vllm@0.33.0", "sglang@0.5.23"])
def test_phases_add_up(profile, policy):
    record, card = profile(policy)
    outcome = judge(record, load_model(TINY), load_policy(policy))
    assert outcome.document["failure"] is None
    assert outcome.document["identity"]["difference"] == 0
    assert card.used() == 0
    model = load_model(TINY)
    weights = outcome.budgets[0].term("weights_memory")
    exact = model.weights_bytes().value + rope_cache_bytes(model)
    assert exact <= weights <= exact + 64 * 1024  # each tensor is rounded up to 512 bytes


def test_graphs_by_two_samples_and_all(profile):
    """Ladder of 8 requests: 1, 2, 4, 8, 16; three MiB each."""
    for everything in (False, True):
        record, card = profile(all_graphs=everything)
        extra = record.ranks[0].at("graphs").extra
        assert extra["graph_memory"] == 15 * MIB
        assert extra["graphs_captured"] == (5 if everything else 2)
        assert extra.get("graph_memory_full") == (15 * MIB if everything else None)
        assert len({id(stream) for stream in card.captured_on}) == 1
        assert card.graphs == 0


def test_no_graphs(profile):
    record, card = profile(graphs=False)
    assert record.ranks[0].at("graphs").extra == {}
    assert not card.captured_on


SORRY = "CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has a total capacity of 2.00 GiB"


@pytest.mark.parametrize(
    ("phase", "error", "requested"),
    [
        ("forward", torch.OutOfMemoryError(SORRY), int(3.5 * 2**30)),
        ("context", RuntimeError("CUDA error: out of memory"), None),
        ("handles", RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), None),
    ],
)
def test_memory_that_runs_out_is_a_result(profile, phase, error, requested):
    record, _ = profile(break_phase=phase, error=error)
    failure = record.ranks[0].failure
    assert (failure.kind, failure.phase, failure.requested) == ("oom", phase, requested)
    assert failure.free is not None


def test_memory_that_runs_out_in_a_capture_is_behind_the_captures_error(profile):
    late = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    late.__context__ = torch.OutOfMemoryError(SORRY)
    record, _ = profile(break_phase="graphs", error=late)
    assert record.ranks[0].failure.requested == int(3.5 * 2**30)


NO_HANDLE = "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"


def test_a_library_that_cannot_start_on_a_full_device_found_no_memory(profile):
    full = TOTAL - 100 * MIB
    record, _ = profile(break_phase="handles", error=RuntimeError(NO_HANDLE), neighbour=full)
    failure = record.ranks[0].failure
    assert (failure.kind, failure.phase, failure.requested) == ("oom", "handles", None)
    assert failure.free == 100 * MIB
    with pytest.raises(RuntimeError, match="NOT_INITIALIZED"):
        profile(break_phase="handles", error=RuntimeError(NO_HANDLE))


def test_a_device_that_others_fill_is_said_to_be_too_full_for_the_budget(profile):
    record, _ = profile(neighbour=TOTAL // 2)
    notes = judge(record, load_model(TINY), load_policy("vllm@0.33.0")).document["notes"]
    assert any("less than the budget" in note and "1.00 GiB" in note for note in notes)
    record, _ = profile()
    notes = judge(record, load_model(TINY), load_policy("vllm@0.33.0")).document["notes"]
    assert not any("less than the budget" in note for note in notes)


@pytest.mark.parametrize("failed", [False, True])
def test_a_rank_that_failed_does_not_wait_for_the_others(monkeypatch, failed):
    """Leaving a process group asks the other ranks, who may hang where this one failed."""
    left = []
    with LiveBytes() as tracker:
        Card(tracker).install(monkeypatch, 0)
        for name, value in {
            "is_initialized": lambda: True, "init_process_group": lambda *_, **__: None,
            "all_reduce": lambda _: None, "destroy_process_group": lambda: left.append(1),
        }.items():  # fmt: skip
            monkeypatch.setattr(
                torch.distributed, name, like(getattr(torch.distributed, name), value)
            )
        job = Job(str(TINY), device="cuda", tokens=16, requests=2, tp=2)
        backend = cuda.CudaBackend(job, load_model(TINY), load_policy(job.policy), rank=1, port=9)
        backend.device = "cpu"
        if failed:

            def broken():
                raise torch.OutOfMemoryError(SORRY)

            monkeypatch.setattr(backend, "_weights", broken)
        rank = run_phases(backend, "TP1", phases=["context", "nccl", "baseline", "weights"])
    assert (rank.failure is not None) is failed
    assert left == ([] if failed else [1])


def test_other_errors_are_not_called_memory(profile):
    with pytest.raises(RuntimeError, match="illegal"):
        profile(break_phase="forward", error=RuntimeError("an illegal memory access"))


def test_the_host_of_a_shared_memory_answers(profile, monkeypatch):
    monkeypatch.setattr(cuda, "host_memory", lambda: (TOTAL, 123 * MIB))
    record, _ = profile(integrated=1)
    assert record.scene.integrated
    assert record.ranks[0].at("baseline").driver_free == 123 * MIB


@pytest.mark.parametrize(("built", "hint"), [(None, "CPU build"), ("13.0", "wants CUDA 13.0")])
def test_a_torch_without_a_device_says_why(monkeypatch, built, hint):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built)
    with pytest.raises(InputError, match="finds no CUDA device") as caught:
        cuda.CudaBackend(Job("m"), None, None, rank=0, port=0)
    assert hint in caught.value.hint
