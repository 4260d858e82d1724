"""Runs the installed engine until the last needed line has come, then ends its process group."""

from __future__ import annotations

import contextlib
import io
import os
import selectors
import signal
import subprocess
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvbudget.errors import EXIT_EVIDENCE, EXIT_FINDINGS, EXIT_OK, InputError
from kvbudget.profile.types import Failure, ProfileTerm

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.logs.collect import LogReading
    from kvbudget.profile.engines.argv import Launch
    from kvbudget.profile.judge import Outcome
    from kvbudget.profile.options import Options

GRACE = 5.0
"""Seconds between the polite end of a group and the other one."""
PARSE_EVERY = 0.25
"""Seconds between two looks at what the engine has printed."""
SETTLE = 1.0
"""Seconds without a new line after which optional lines are not waited for any longer."""


def run_engine(options: Options, on_phase: Callable[[str], None]) -> Outcome:
    """The profile of an engine by itself. Raises InputError where it cannot be started."""
    from kvbudget.profile.device import bundled_model
    from kvbudget.profile.engines.argv import make_launch
    from kvbudget.profile.judge import Outcome
    from kvbudget.profile.ranks import free_port

    if options.model is None:
        raise InputError("no model to profile", "--model MODEL")
    stated = (options.policy or "").partition("@")[2] or None
    fraction = "" if options.utilization is None else f"{options.utilization:g}"
    values = {
        "model": bundled_model(options.model), "tokens": str(options.tokens or ""),
        "requests": str(options.requests or ""), "fraction": fraction,
        "tp": str(options.tp), "port": str(free_port()), "dtype": options.dtype,
        "pp": str(options.pp), "load": options.load_format,
    }  # fmt: skip
    asked = frozenset(
        name for name, holds in (
            ("no_graphs", not options.graphs), ("stages", options.pp > 1),
            ("expert_parallel", options.expert_parallel),
        ) if holds
    )  # fmt: skip
    launch = make_launch(options.engine, values, asked=asked, version=stated)
    if options.dry_run:
        env = [f"{key}={value}" for key, value in launch.env.items()]
        plan = [" ".join([*env, *launch.argv]), f"waits for: {', '.join(launch.needed)}",
                *launch.notes]  # fmt: skip
        return Outcome({"schema": "kvbudget.profile/1", "dry_run": True, "plan": plan}, EXIT_OK)
    on_phase(f"engine {options.engine}")
    reading, failure, text = follow(launch, timeout=options.timeout)
    if options.record is not None:
        options.record.write_bytes(text)
    document = engine_document(launch, reading, failure)
    code = EXIT_OK
    if document["failure"] is not None:
        oom = document["failure"]["kind"] == "oom"
        code = EXIT_FINDINGS if oom else EXIT_EVIDENCE
    return Outcome(document, code)


def follow(launch: Launch, *, timeout: float) -> tuple[LogReading, Failure | None, bytes]:
    """Run `launch` and read its output as it comes.

    Returns the reading, why it ended too early (None: all needed facts came), and the output.
    Silence of `timeout` seconds is a Failure of kind `timeout`. The group is gone on return,
    also when this is interrupted.
    """
    process = subprocess.Popen(
        launch.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, env={**os.environ, **launch.env},
    )  # fmt: skip
    output = bytearray()
    try:
        failure = _watch(process, output, launch, timeout)
    finally:
        end_group(process)
    return _read(bytes(output)), failure, bytes(output)


def _watch(
    process: subprocess.Popen[bytes], output: bytearray, launch: Launch, timeout: float
) -> Failure | None:
    assert process.stdout is not None
    handle = process.stdout.fileno()
    os.set_blocking(handle, False)
    last_output = time.monotonic()
    parsed = 0
    with selectors.DefaultSelector() as selector:
        selector.register(handle, selectors.EVENT_READ)
        while True:
            ready = selector.select(PARSE_EVERY)
            chunk = b""
            if ready:
                chunk = os.read(handle, 1 << 16)
                if not chunk:
                    break
                output += chunk
                last_output = time.monotonic()
            quiet = time.monotonic() - last_output
            if len(output) > parsed and not chunk:
                parsed = len(output)
                if _complete(_read(bytes(output)), launch, quiet=False):
                    return None
            if quiet > SETTLE and parsed and _complete(_read(bytes(output)), launch, quiet=True):
                return None
            if quiet > timeout:
                return Failure(
                    "engine", "timeout",
                    message=f"silent for {timeout:g} s; missing: {_missing(output, launch)}",
                )  # fmt: skip
    reading = _read(bytes(output))
    if _complete(reading, launch, quiet=True):
        return None
    code = process.wait()
    return _death(reading, f"ended with {code}; missing: {_missing(output, launch)}")


def _death(reading: LogReading, message: str) -> Failure:
    """Why an engine ended by itself: the allocator's refusal where the log has one."""
    tried, free = reading.best("oom.tried_to_allocate"), reading.best("oom.free")
    if tried is not None and isinstance(tried.value, (int, float)):
        left = int(free.value) if free and isinstance(free.value, (int, float)) else None
        return Failure("engine", "oom", int(tried.value), left, message)
    return Failure("engine", "engine", message=message)


def _missing(output: bytearray, launch: Launch) -> str:
    reading = _read(bytes(output))
    return ", ".join(n for n in launch.needed if reading.best(n) is None) or "nothing"


def _complete(reading: LogReading, launch: Launch, *, quiet: bool) -> bool:
    """All needed facts are there, and the optional ones too unless the engine has gone quiet."""
    wanted = launch.needed if quiet else (*launch.needed, *launch.reported)
    return all(reading.best(name) is not None for name in wanted)


def _read(text: bytes) -> LogReading:
    from kvbudget.logs.collect import read_log

    return read_log(io.BytesIO(text), name="engine output")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGINT, then SIGKILL to the whole group; returns when nobody of it is left."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


TERMS = ("weights_memory", "peak_activation_memory", "non_torch_memory", "cuda_graph_memory",
         "kv_cache_memory")  # fmt: skip


def engine_document(launch: Launch, reading: LogReading, failure: Failure | None) -> dict[str, Any]:
    """The document of a profile whose numbers the engine printed itself."""
    ranks: dict[str, list[dict[str, Any]]] = {}
    for rank in dict.fromkeys(f.rank for f in reading.facts if f.name in TERMS):
        terms = []
        for name in TERMS:
            fact = reading.best(name, rank)
            if fact is None or fact.rank != rank or not isinstance(fact.value, (int, float)):
                continue
            low, high = fact.low, fact.high
            terms.append(asdict(ProfileTerm(
                name, int(fact.value), int(fact.value if low is None else low),
                int(fact.value if high is None else high), "engine_log",
                f"line {fact.line}: printed {fact.printed}",
            )))  # fmt: skip
        ranks[rank or "TP0"] = terms
    numbers = {
        name: int(fact.value) if (fact := reading.best(name)) is not None
        and isinstance(fact.value, (int, float)) else None
        for name in ("kv_cache_memory", "num_gpu_blocks", "kv_cache_tokens")
    }  # fmt: skip
    free, asked = reading.best("free_memory"), reading.best("requested_memory")
    margin = None
    if (
        free
        and asked
        and isinstance(free.value, (int, float))
        and isinstance(asked.value, (int, float))
    ):
        margin = int(free.value - asked.value)
    missing = [n for n in (*launch.needed, *launch.reported) if reading.best(n) is None]
    notes = [*launch.notes, *(f"the engine printed no {name}" for name in missing)]
    total = reading.best("total_memory")
    version = reading.engine_version or launch.version
    return {
        "schema": "kvbudget.profile/1",
        "device": {
            "kind": "cuda", "name": None, "uuid": None,
            "total_memory": int(total.value)
            if total and isinstance(total.value, (int, float)) else None,
            "reserved_memory": None, "other_memory": None, "mig": None, "integrated": None,
        },
        "engine": launch.engine,
        "policy": f"{launch.engine}@{version}" if version else launch.engine,
        "ranks": [{"rank": r, "phases": [], "terms": t} for r, t in ranks.items()],
        "result": {**numbers, "margin_memory": margin},
        "identity": {"lhs": None, "rhs": None, "difference": None, "terms": []},
        "modelled": [],
        "stable": True,
        "failure": None if failure is None else asdict(failure),
        "notes": notes,
        "versions": {launch.engine: version},
    }  # fmt: skip
