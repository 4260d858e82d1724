"""What a hurried person types: each slip is refused in words that name it and say what to write."""

from __future__ import annotations

import json

import pytest
from model_configs import LLAMA_8B
from typer.testing import CliRunner

from kvbudget.cli.app import app
from kvbudget.errors import KvbudgetError

CARD = ["--gpu", "h100-80gb"]
VLLM_LOG = """\
INFO 01-02 03:04:00 [core.py:1] Initializing a V1 LLM engine (v0.25.1) with config: model='m'
INFO 01-02 03:04:03 [gpu_model_runner.py:1] Model loading took 14.99 GiB memory and 2.8 seconds
INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: 30.50 GiB
INFO 01-02 03:04:05 [kv_cache_utils.py:1] GPU KV cache size: 249,856 tokens
"""
SGLANG_LOG = """\
[2026-01-05 10:00:00] server_args=ServerArgs(model_path='a/b', mem_fraction_static=0.8, tp_size=1)
[2026-01-05 10:00:01 TP0] Load weight begin. avail mem=78.50 GB
[2026-01-05 10:00:09 TP0] Load weight end. type=X, dtype=torch.bfloat16, avail mem=63.40 GB, \
mem usage=15.10 GB.
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama/config.json").write_text(json.dumps(LLAMA_8B))
    (tmp_path / "vllm.log").write_text(VLLM_LOG)
    (tmp_path / "sglang.log").write_text(SGLANG_LOG)
    (tmp_path / "empty.log").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        ([*CARD, "--gpu-memory-utilization", "90"], "utilization 90 is out of range", "0.9 for 90"),
        ([*CARD, "--gpu-memory-utilization", "90%"], "not '90%'", "write 0.9"),
        ([*CARD, "-tp", "two"], "--tensor-parallel-size takes a number, not 'two'", "ranks"),
        (["--gpu-memory", "80"], "--gpu-memory 80: no card", "--gpu-memory 80GiB"),
        ([*CARD, "--engine", "vllm", "--engine-version", "sglang@0.5.9"], "sglang is not derived",
         "--engine sglang"),
        (["--from-log", "empty.log"], "empty.log: no line of a known engine", "start-up log"),
    ],
)  # fmt: skip
def test_a_slip_in_derive(folder, words, what, hint):
    error = run("derive", "llama", *words).exception
    assert isinstance(error, KvbudgetError)
    assert what in error.what
    assert hint in (error.hint or "")


def test_a_file_that_cannot_be_compared(folder):
    error = run("diff", "vllm.log", "llama/config.json").exception
    assert isinstance(error, KvbudgetError)
    assert "llama/config.json" in error.what
    assert "JSON of derive" in (error.hint or "")


@pytest.mark.parametrize(("engine", "lent"), [("vllm", "vllm.log"), ("sglang", "sglang.log")])
def test_the_log_of_another_engine_lends_no_pool(folder, engine, lent):
    other = {"vllm": "sglang", "sglang": "vllm"}[engine]
    words = ["--from-log", lent, *CARD, "--engine", "both", "--format", "json"]
    both = {
        one["engine"]: one for one in json.loads(run("derive", "llama", *words).stdout)["engines"]
    }
    terms = {name: {t["name"]: t["provenance"]["kind"] for t in one["terms"]}
             for name, one in both.items()}  # fmt: skip
    assert terms[engine]["weights_memory"] == terms[other]["weights_memory"] == "log"
    strangers = {name for name, kind in terms[other].items() if kind == "log"}
    assert strangers <= {"weights_memory", "total_memory", "tensor_parallel_size", "tp_size"}
    assert both[other]["result"]["kv_cache_memory"] != both[engine]["result"]["kv_cache_memory"]
    said = [f"{lent} is a log of {engine}" in " ".join(one["notes"]) for one in both.values()]
    assert said == [name == other for name in both]


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_a_log_that_powershell_wrote(folder, order):
    data = ("\ufeff" + VLLM_LOG.replace("\n", "\r\n")).encode(order)
    (folder / "shell.log").write_bytes(data)
    plain, found = (
        run("explain-log", name, "--format", "json") for name in ("vllm.log", "shell.log")
    )
    assert json.loads(found.stdout)["facts"] == json.loads(plain.stdout)["facts"]
    (folder / "cut.log").write_bytes(data[:-1])
    assert run("explain-log", "cut.log").exit_code == 0


@pytest.mark.parametrize(
    ("lent", "why"),
    [
        ("vllm.log", ""),
        ("sglang.log", "a log of sglang, the failure is of vllm"),
        ("empty.log", "no line of a known engine"),
    ],
)
def test_a_start_up_log_that_says_nothing_about_the_failure(folder, lent, why):
    (folder / "crash.log").write_text(
        "INFO 01-02 03:04:00 [core.py:1] Initializing a V1 LLM engine (v0.25.1) with config: "
        "model='m'\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB.\n"
    )
    done = run("oom-triage", "crash.log", "--startup-log", lent)
    assert done.exit_code == 0
    assert why in done.stderr
    assert bool(done.stderr) is bool(why)
    assert "sglang" not in done.stdout


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        ("derive llama --gpu-memory much", "--gpu-memory: not a size", "79.6GiB"),
        ("derive llama --gpu h200 --set weights_memory=x", "--set weights_memory: not", "79.6GiB"),
        ("explain-log vllm.log --bytes-per-block 2XB", "--bytes-per-block: not a size", "79.6GiB"),
        ("watch --once --min-margin x", "--min-margin: not a size", "79.6GiB"),
        ("residency window --rate 5 --l1 x", "not a size: 'x'", "445632tok"),
        ("profile --model tiny --gpu-memory-utilization 90", "utilization 90 is out", "0.9 for 90"),
        ("knowledge show vllm.kv.availabel", "nothing known is called", "vllm.kv.available?"),
    ],
)
def test_a_value_that_is_none(folder, words, what, hint):
    error = run(*words.split()).exception
    assert isinstance(error, KvbudgetError)
    assert what in error.what
    assert hint in (error.hint or "")


def test_drift_prints_what_moved_and_says_how_much_stands(folder):
    done = run("knowledge", "drift", "vllm", "--checkout", ".")
    assert done.exit_code == 1
    assert {line.partition("  ")[0] for line in done.stdout.splitlines()} == {"file gone"}
    assert f"{len(done.stdout.splitlines())} steps: the cited lines of 0 stand" in done.stderr
    assert "does not look like the root of vllm's source" in done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("empty.log", "the text is empty"),
        ("llama/config.json", "nor any line of a known engine"),
        ("vllm.log", "no error, traceback or kill in this text\n"),
    ],
)
def test_a_text_in_which_nothing_failed_may_be_the_wrong_one(folder, name, said):
    done = run("oom-triage", name)
    assert done.exit_code == 3
    assert said in done.stdout


def test_json_and_recordings_come_from_stdin_too(folder):
    for command in ("profile --replay -", "derive llama --from-profile -", "watch --replay -"):
        error = CliRunner().invoke(app, command.split(), input="not a record\n").exception
        assert isinstance(error, KvbudgetError)
        assert error.what.startswith("-")
        assert "JSON" in error.what
