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
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError, KvbudgetError
from kvbudget.profile.types import Failure, RankRecord, Scene, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kvbudget.profile.types import Job


class Child:
    """One rank's process, in a process group of its own."""

    def __init__(self, job: Job, rank: int, port: int, env: dict[str, str]) -> None:
        self.record = RankRecord(job.rank_name(rank), stage=rank // job.tp)
        self.scene: Scene | None = None
        self.phase = "start"
        self.error: dict[str, Any] | None = None
        self.done = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in stop()
        read, write = os.pipe()
        self.pipe: Any = os.fdopen(read, "rb", buffering=0)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kvbudget.profile.child", str(write), str(os.getpid())],
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

    def explain_death(self) -> None:
        """The process closed its pipe without a last message: why is its failure."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code, said = self.process.poll(), self.last_words()
        killed = code == -signal.SIGKILL and not said
        message = said or ("the kernel ended the process, as it does when memory runs out"
                           if killed else f"the process ended with {code}")  # fmt: skip
        self.record.failure = Failure(self.phase, "oom" if killed else "child", message=message)


def free_port() -> int:
    """A free TCP port of the loop-back interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(
    job: Job, envs: Mapping[int, dict[str, str]], *, timeout: float,
    on_phase: Callable[[str], None] | None = None,
) -> tuple[list[RankRecord], Scene]:  # fmt: skip
    """Run one child per rank of `envs` (rank -> its environment) and collect their records.

    Raises what a child reports as a user error; a child that dies or says nothing for `timeout`
    seconds is a Failure of its phase, and the others are ended with it. No child is alive when
    this returns or raises, KeyboardInterrupt included.
    """
    port = free_port() if len(envs) > 1 else 0
    children: list[Child] = []
    try:
        for rank, env in envs.items():
            # One by one: those already started must be known if the next one cannot start.
            children.append(Child(job, rank, port, env))
        _listen(children, timeout, on_phase)
    finally:
        for child in children:
            child.stop()
    for child in children:
        if child.error is not None:
            error = KvbudgetError(child.error["what"], child.error["hint"])
            error.exit_code = child.error["code"]
            raise error
    scene = next((c.scene for c in children if c.scene is not None), None)
    if scene is None:
        failures = [c.record.failure.message for c in children if c.record.failure is not None]
        raise InputError(
            f"the profile process did not start: {failures[0] if failures else 'no message'}",
            "run with --device cpu to see whether PyTorch itself works",
        )
    return [child.record for child in children], scene


def _listen(
    children: Sequence[Child], timeout: float, on_phase: Callable[[str], None] | None
) -> None:
    """Until every child has finished, or one has failed: the others may wait for it for ever."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        while selector.get_map():
            ready = selector.select(timeout)
            if not ready:
                for key in list(selector.get_map().values()):
                    late: Child = key.data
                    late.record.failure = Failure(
                        late.phase, "timeout", message=f"silent for {timeout:g} s"
                    )
                return
            for key, _ in ready:
                child = key.data
                line = child.pipe.readline()
                if not line:
                    selector.unregister(child.pipe)
                    if not child.done:
                        child.explain_death()
                else:
                    phase = child.take(line)
                    if phase and on_phase and child is children[0]:
                        on_phase(phase)
                if child.record.failure is not None or child.error is not None:
                    return
