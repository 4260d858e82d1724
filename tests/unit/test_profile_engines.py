"""The engine driver on scripted stand-ins: fields read, group ended, missing lines named."""

import json
import os
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from kvbudget.profile.engines.argv import make_launch
from kvbudget.profile.engines.driver import engine_document, follow

VALUES = {
    "model": "m", "tokens": "2048", "requests": "64", "fraction": "0.9", "tp": "1",
    "port": "1", "dtype": "auto", "pp": "2", "load": "dummy",
}  # fmt: skip
FLAGS = (
    "--load-format --skip-tokenizer-init --max-num-batched-tokens --max-num-seqs "
    "--gpu-memory-utilization --tensor-parallel-size --dtype --enforce-eager --host --port "
    "--log-level --mem-fraction-static --chunked-prefill-size --max-running-requests --tp-size "
    "--disable-cuda-graph --pipeline-parallel-size --enable-expert-parallel --pp-size --ep-size"
)
PARTS = (
    "Memory profiling takes 4.01 seconds; torch peak memory increase: 1.31GiB; "
    "non-torch forward increase memory: 0.12GiB; weights memory: 7.42GiB."
)
OLD = [
    "Model loading took 7.42 GiB and 3.10 seconds",
    "Available KV cache memory: 11.25 GiB",
    "GPU KV cache size: 98,304 tokens",
    "Graph capturing finished in 9 secs, took 0.43 GiB",
]
NEW = ["Model loading took 7.42 GiB memory and 3.10 seconds", *OLD[1:]]
SGL = [
    "Load weight end. type=M, dtype=torch.bfloat16, avail mem=15.20 GB, mem usage=7.42 GB.",
    "KV Cache is allocated. #tokens: 98304, K size: 5.62 GB, V size: 5.62 GB",
    "Capture cuda graph end. Time elapsed: 9.10 s. mem usage=0.43 GB. avail mem=3.10 GB.",
]
RELEASES = [
    ("vllm", "0.9.2", OLD), ("vllm", "0.11.2", NEW), ("vllm", "0.17.1", NEW),
    ("vllm", "0.25.1", NEW), ("vllm", "0.33.0", NEW),
    ("sglang", "0.4.6", SGL), ("sglang", "0.5.4", SGL), ("sglang", "0.5.9", SGL),
    ("sglang", "0.5.15", SGL), ("sglang", "0.5.23", SGL),
]  # fmt: skip


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Installs a `vllm` and a `python` that print `lines`, start a grandchild, and sleep."""

    def install(version, lines, *, code=None, flags=FLAGS):
        script = textwrap.dedent(f"""\
            #!{sys.executable}
            import subprocess, sys, time
            args = sys.argv[1:]
            if any(a.startswith("--help") for a in args):
                print({flags!r}.replace(" ", "\\n")); sys.exit(0)
            if "--version" in args or "-c" in args:
                print({version!r}); sys.exit(0)
            worker = subprocess.Popen(["sleep", "300"])
            open({str(tmp_path / "pids")!r}, "w").write(str(worker.pid))
            for line in {lines!r}:
                print("INFO 01-01 00:00:00 [x.py:1] " + line, flush=True)
            if {code!r} is not None:
                worker.kill(); sys.exit({code!r})
            time.sleep(300)
        """)
        for name in ("vllm", "python"):
            path = tmp_path / name
            path.write_text(script)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path

    return install


def gone(folder):
    """True when the stand-in's own child is no more (or only a zombie of nobody)."""
    pid = int((folder / "pids").read_text())
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(("engine", "version", "lines"), RELEASES)
def test_fields_and_no_child_left(stand_in, engine, version, lines):
    folder = stand_in(version, lines)
    launch = make_launch(engine, VALUES)
    assert launch.version == version
    reading, failure, _ = follow(launch, timeout=20)
    document = engine_document(launch, reading, failure)
    assert document["failure"] is None
    terms = {t["name"]: t for t in document["ranks"][0]["terms"]}
    assert terms["weights_memory"]["low"] <= 7.42 * 2**30 <= terms["weights_memory"]["high"]
    assert document["result"]["kv_cache_tokens"] == 98304
    assert terms["cuda_graph_memory"]["source"] == "engine_log"
    assert gone(folder)


def test_a_missing_line_is_named(stand_in):
    stand_in("0.20.2", [NEW[0]], code=1)
    launch = make_launch("vllm", VALUES)
    _, failure, _ = follow(launch, timeout=20)
    assert failure.kind == "engine"
    assert "kv_cache_memory" in failure.message
    assert "weights_memory" not in failure.message


def test_a_hang_ends_by_timeout(stand_in):
    folder = stand_in("0.20.2", [NEW[0]])
    _, failure, _ = follow(make_launch("vllm", VALUES), timeout=1.5)
    assert failure.kind == "timeout"
    assert gone(folder)


def test_out_of_memory_of_the_engine(stand_in):
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has a total "
        "capacity of 23.50 GiB of which 1.25 GiB is free."
    )
    stand_in("0.20.2", [line], code=1)
    _, failure, _ = follow(make_launch("vllm", VALUES), timeout=20)
    assert (failure.kind, failure.requested) == ("oom", int(3.5 * 2**30))


def test_an_option_the_release_lacks(stand_in):
    from kvbudget.errors import InputError

    stand_in("0.33.0", [], flags=FLAGS.replace("--skip-tokenizer-init ", ""))
    launch = make_launch("vllm", VALUES, asked=frozenset({"no_graphs"}))
    assert "--skip-tokenizer-init" not in launch.argv
    assert "--enforce-eager" in launch.argv
    assert any("left out" in note for note in launch.notes)
    stand_in("0.33.0", [], flags=FLAGS.replace("--load-format ", ""))
    with pytest.raises(InputError, match="--load-format"):
        make_launch("vllm", VALUES, asked=frozenset({"no_graphs"}))


@pytest.mark.parametrize(
    ("engine", "stages", "experts"),
    [("vllm", ["--pipeline-parallel-size", "2"], ["--enable-expert-parallel"]),
     ("sglang", ["--pp-size", "2"], ["--ep-size", "1"])],
)  # fmt: skip
def test_options_for_what_was_asked(stand_in, engine, stages, experts):
    stand_in("0.33.0", [])
    plain = " ".join(make_launch(engine, VALUES).argv)
    both = " ".join(
        make_launch(engine, VALUES, asked=frozenset({"stages", "expert_parallel"})).argv
    )
    for words in (stages, experts):
        assert " ".join(words) not in plain
        assert " ".join(words) in both


@pytest.mark.parametrize(
    "args",
    [("--device", "fake"), ("--device", "cuda:1"), ("--gpu", "h100-80gb"), ("--all-graphs",),
     ("--decode-steps", "1"), ("--assume", "a=1"), ("--runner", "hf"), ("--replay", "x.json")],
)  # fmt: skip
def test_options_the_engine_would_not_hear_of(args):
    done = subprocess.run(
        [sys.executable, "-m", "kvbudget", "profile", "--model", "tiny", "--engine", "vllm", *args],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not go" in done.stderr


def test_the_command(stand_in):
    stand_in("0.33.0", NEW)
    done = subprocess.run(
        [sys.executable, "-m", "kvbudget", "profile", "--model", "tiny", "--engine", "vllm",
         "--format", "json"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engine"] == "vllm"
