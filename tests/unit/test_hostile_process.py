"""The ways a run is cut short from outside: full disks, closed streams, readers that leave, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hostile import LOG, write
from model_configs import LLAMA_8B

KVBUDGET = [sys.executable, "-m", "kvbudget"]
RUNS = {
    "explain-log": ["explain-log", "serve.log"],
    "oom-triage": ["oom-triage", "serve.log", "--format", "json"],
    "derive": ["derive", "config.json", "--engine", "vllm", "--gpu", "h200"],
    "plan": ["plan", "config.json", "--engine", "vllm", "--gpu", "h200", "--context", "8192"],
    "diff": ["diff", "serve.log", "serve.log"],
    "gate": ["gate", "serve.sh"],
    "window": ["residency", "window", "--l1", "445632tok", "--rate", "2000"],
    "watch": ["watch", "--replay", "watch.jsonl", "--format", "json-lines"],
    "knowledge": ["knowledge", "list"],
    "--help": ["--help"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "serve.log").write_text(LOG)
    (tmp_path / "serve.sh").write_text("vllm serve own/a --gpu-memory-utilization 0.9\n")
    write(tmp_path / "config.json", LLAMA_8B)
    reading = {"elapsed": 1.0, "time": "", "schema": "kvbudget.watch-record/1",
               "gpus": [{"index": 0, "total_memory": 2**36, "free_memory": 2**35}]}  # fmt: skip
    (tmp_path / "watch.jsonl").write_text(f"{json.dumps(reading)}\n" * 3)
    return tmp_path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("name", RUNS)
def test_full_disk_behind_stdout(name: str, folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*KVBUDGET, *RUNS[name]],
            stdout=full, stderr=subprocess.PIPE, cwd=folder, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", RUNS)
def test_reader_that_left(name: str, folder: Path) -> None:
    whole = subprocess.run(
        [*KVBUDGET, *RUNS[name]], capture_output=True, cwd=folder, timeout=120, check=False
    )
    with subprocess.Popen(
        [*KVBUDGET, *RUNS[name]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        error = process.stderr.read()
    assert b"Traceback" not in error
    assert b"Exception ignored" not in error
    assert process.returncode == whole.returncode


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-"])
def test_closed_streams(stream: str, folder: Path) -> None:
    """Nothing the program opens may take the place of a stream that the caller closed."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {stream}', "sh", *KVBUDGET, "explain-log", "serve.log",
         "--format", "json"],
        capture_output=True, cwd=folder, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == b""
    assert (folder / "serve.log").read_text() == LOG
    if stream != ">&-":
        assert json.loads(done.stdout)["facts"]


def test_interrupt(folder: Path) -> None:
    # What runs in the background inherits SIGINT ignored; a handler here is the default there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [*KVBUDGET, "explain-log", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
    ) as process:  # fmt: skip
        signal.signal(signal.SIGINT, before)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(LOG.encode())
        process.stdin.flush()
        time.sleep(4)  # it now waits for the rest of the log
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("name", ["explain-log", "diff", "derive"])
def test_named_pipes(name: str, folder: Path) -> None:
    """`<(zcat serve.log.gz)`: what can be read only once is read only once."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    words = {"explain-log": ["explain-log", "pipe"], "diff": ["diff", "pipe", "serve.log"],
             "derive": [*RUNS["derive"], "--from-log", "pipe"]}[name]  # fmt: skip
    writer = threading.Thread(target=pipe.write_text, args=(LOG,), daemon=True)
    writer.start()
    done = subprocess.run(
        [*KVBUDGET, *words], capture_output=True, cwd=folder, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
