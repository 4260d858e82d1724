"""`python -m kvbudget.profile.child FD PARENT`: one rank in a process of its own, JSON lines on FD.

Messages: {"phase": name}, {"snapshot": {...}}, {"scene": {...}}, then {"done": {...}} or
{"error": {...}}. The job comes as one JSON line on stdin. The process dies with its parent.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError, KvbudgetError
from kvbudget.profile.types import PHASES, Job

if TYPE_CHECKING:
    from kvbudget.profile.protocols import Backend


def die_with_parent(parent: int) -> None:
    """Linux: SIGKILL this process when its parent goes, however it goes; exit if it has gone."""
    import ctypes
    import signal

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def make_backend(job: Job, rank: int, port: int) -> Backend:
    """The device of the job. Raises InputError where torch is absent or lacks the device."""
    from kvbudget.model.config import load_model
    from kvbudget.profile.policy import load_policy

    model = load_model(job.model, assume=job.assume).with_dtype(job.dtype)
    policy = load_policy(job.policy)
    if job.device in ("cpu", "fake"):
        from kvbudget.profile.backends.tracked import TrackedBackend

        return TrackedBackend(job, model, policy, fake=job.device == "fake", rank=rank)
    from kvbudget.profile.backends.cuda import CudaBackend

    return CudaBackend(job, model, policy, rank=rank, port=port)


def serve(raw: dict[str, Any], send: Any) -> None:  # noqa: ANN401 - a callable
    """Run the phases of one rank and send what happens."""
    from kvbudget.profile.phases import run_phases

    job, rank = Job(**raw["job"]), int(raw.get("rank", 0))
    try:
        import torch
    except ImportError as exc:
        raise InputError(
            "kvbudget profile needs PyTorch", 'pip install "kvbudget[profile]"'
        ) from exc
    gc.freeze()  # imports are not garbage: collections between phases stay cheap
    backend = make_backend(job, rank, int(raw.get("port", 0)))
    send({"scene": asdict(backend.scene())})
    record = run_phases(
        backend, job.rank_name(rank),
        phases=[p for p in PHASES if p not in ("before", "exit")],
        on_phase=lambda phase: send({"phase": phase}),
        on_snapshot=lambda snapshot: send({"snapshot": asdict(snapshot)}),
    )  # fmt: skip
    failure = None if record.failure is None else asdict(record.failure)
    versions = {"torch": str(torch.__version__)}
    if job.runner == "hf":
        versions["transformers"] = version("transformers")
    send({"done": {"failure": failure, "notes": record.notes, "versions": versions}})


def main() -> None:
    die_with_parent(int(sys.argv[2]))
    stream = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8", buffering=1)

    def send(message: dict[str, Any]) -> None:
        stream.write(json.dumps(message) + "\n")
        stream.flush()

    try:
        serve(json.loads(sys.stdin.readline()), send)
    except KvbudgetError as exc:
        send({"error": {"what": exc.what, "hint": exc.hint, "code": exc.exit_code}})
    stream.close()


if __name__ == "__main__":
    main()
