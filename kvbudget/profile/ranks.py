"""Children of a profile: one fresh process per rank, watched, and none left behind."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError, KvbudgetError
from kvbudget.profile.types import Failure, RankRecord, Scene, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvbudget.profile.types import Job


class Child:
    """One rank's process, in a process group of its own."""

    def __init__(self, job: Job, rank: int, port: int, env: dict[str, str]) -> None:
        self.record = RankRecord(f"TP{rank}")
        self.scene: Scene | None = None
        self.phase = "start"
        self.error: dict[str, Any] | None = None
        self.done = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in stop()
        read, write = os.pipe()
        self.pipe: Any = os.fdopen(read, "rb", buffering=0)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kvbudget.profile.child", str(write)],
                stdin=subprocess.PIPE, stdout=self._stderr, stderr=self._stderr,
                pass_fds=(write,), start_new_session=True,
                env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ, **env},
            )  # fmt: skip
        finally:
            os.close(write)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            line = json.dumps({"job": asdict(job), "rank": rank, "port": port}) + "\n"
            self.process.stdin.write(line.encode())
            self.process.stdin.close()

    def take(self, line: bytes) -> str | None:
        """Digest one message; returns the phase it announces, if it does."""
        message = json.loads(line)
        if "snapshot" in message:
            self.record.snapshots.append(Snapshot(**message["snapshot"]))
        elif "scene" in message:
            raw = message["scene"]
            raw["notes"] = tuple(raw["notes"])
            self.scene = Scene(**raw)
        elif "error" in message:
            self.error = message["error"]
            self.done = True
        elif "done" in message:
            done = message["done"]
            self.record.failure = Failure(**done["failure"]) if done["failure"] else None
            self.record.notes = done["notes"]
            self.record.versions = done["versions"]
            self.done = True
        elif "phase" in message:
            self.phase = message["phase"]
            return self.phase
        return None

    def last_words(self) -> str:
        self._stderr.seek(0)
        text = self._stderr.read()[-4000:].decode("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else ""

    def stop(self) -> None:
        """Kill the whole group and reap it; harmless when it is gone already."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.pipe.close()
        self._stderr.close()


def free_port() -> int:
    """A free TCP port of the loop-back interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(
    job: Job, envs: Sequence[dict[str, str]], *, timeout: float,
    on_phase: Callable[[str], None] | None = None,
) -> tuple[list[RankRecord], Scene]:  # fmt: skip
    """Run one child per entry of `envs` and collect their records.

    Raises what a child reports as a user error; a child that dies or hangs is a Failure of its
    phase. No child is alive when this returns or raises, KeyboardInterrupt included.
    """
    port = free_port() if len(envs) > 1 else 0
    children: list[Child] = []
    try:
        children = [Child(job, rank, port, env) for rank, env in enumerate(envs)]
        _listen(children, timeout, on_phase)
    finally:
        words = [child.last_words() for child in children]
        for child in children:
            child.stop()
    for child, said in zip(children, words, strict=True):
        if child.error is not None:
            error = KvbudgetError(child.error["what"], child.error["hint"])
            error.exit_code = child.error["code"]
            raise error
        if not child.done and child.record.failure is None:
            code = child.process.returncode
            kind = "oom" if code == -signal.SIGKILL and not said else "child"
            child.record.failure = Failure(
                child.phase, kind, message=said or f"the process ended with {code}"
            )
    scene = next((c.scene for c in children if c.scene is not None), None)
    if scene is None:
        first = children[0].record.failure
        raise InputError(
            f"the profile process did not start: {first.message if first else 'no message'}",
            "run with --device cpu to see whether PyTorch itself works",
        )
    return [child.record for child in children], scene


def _listen(
    children: Sequence[Child], timeout: float, on_phase: Callable[[str], None] | None
) -> None:
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                for key in list(selector.get_map().values()):
                    late: Child = key.data
                    late.record.failure = Failure(
                        late.phase, "timeout", message=f"no answer within {timeout:g} s"
                    )
                return
            for key, _ in ready:
                child = key.data
                line = child.pipe.readline()
                if not line:
                    selector.unregister(child.pipe)
                    continue
                phase = child.take(line)
                if phase and on_phase and child is children[0]:
                    on_phase(phase)
                if child.record.failure is not None and len(children) > 1:
                    return
