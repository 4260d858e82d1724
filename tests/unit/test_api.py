"""The library: each function gives the JSON object its command prints."""

from __future__ import annotations

import importlib.util
import inspect
import io
import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from model_configs import LLAMA_8B
from typer.testing import CliRunner
from watch_series import quiet

from kvbudget import api
from kvbudget.cli.app import app
from kvbudget.errors import InputError, MissingFact
from kvbudget.watch.samples import encode

SAMPLES = Path(__file__).parents[2] / "docs" / "samples"
START = SAMPLES / "vllm-llama3-8b.log"
CRASH = SAMPLES / "crash-runtime.log"
RUN = 'vllm serve m --gpu-memory-utilization 0.98 --model-name "x"\n'
TRACE = "".join(
    json.dumps({"timestamp": 1000 * t, "input_length": 1024, "output_length": 8,
                "hash_ids": [t % 5, 100 + t % 5]}) + "\n"
    for t in range(40)
)  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(LLAMA_8B))
    (tmp_path / "serve.sh").write_text(RUN)
    (tmp_path / "trace.jsonl").write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(*args):
    result = CliRunner().invoke(app, [*map(str, args), "--format", "json"])
    return json.loads(result.stdout)


CALLS = {
    "explain-log": (lambda: api.explain_log(START), ["explain-log", START]),
    "oom-triage": (
        lambda: api.oom_triage(CRASH, startup_log=START),
        ["oom-triage", CRASH, "--startup-log", START],
    ),
    "derive": (
        lambda: api.derive("m", gpu="h200", flags=["-tp", "2"], facts={"weights_memory": "7GiB"}),
        ["derive", "m", "--gpu", "h200", "-tp", "2", "--set", "weights_memory=7GiB"],
    ),
    "derive both": (
        lambda: api.derive("m", engine="both", gpu="h200"),
        ["derive", "m", "--engine", "both", "--gpu", "h200"],
    ),
    "plan": (
        lambda: api.plan("m", gpu="h100-80gb", context=4096, concurrency=8),
        ["plan", "m", "--gpu", "h100-80gb", "--context", "4096", "--concurrency", "8"],
    ),
    "diff": (lambda: api.diff(START, str(START)), ["diff", START, START]),
    "gate": (lambda: api.gate("serve.sh", gpu="H200"), ["gate", "serve.sh", "--gpu", "H200"]),
    "residency-window": (
        lambda: api.residency_window("445632tok", 2000, l2="891264tok", policy="exclusive"),
        ["residency", "window", "--l1", "445632tok", "--l2", "891264tok", "--rate", "2000",
         "--policy", "exclusive"],
    ),
    "residency-links": (
        lambda: api.residency_links(131072, prefill_rate=22000, links=["pcie=64GB/s"]),
        ["residency", "links", "--bytes-per-token", "131072", "--prefill-rate", "22000",
         "--link", "pcie=64GB/s"],
    ),
    "residency-curve": (
        lambda: api.residency_curve("trace.jsonl", at=[2, 6]),
        ["residency", "curve", "trace.jsonl", "--at", "2,6"],
    ),
    "residency-simulate": (
        lambda: api.residency_simulate("trace.jsonl", "4blk", l2="8blk", policy="write_through"),
        ["residency", "simulate", "trace.jsonl", "--l1", "4blk", "--l2", "8blk",
         "--policy", "write_through"],
    ),
    "residency-sweep": (
        lambda: api.residency_sweep("trace.jsonl", ["4blk", "6blk"], l2=["8blk"],
                                    policies=["exclusive", "write_back"]),
        ["residency", "sweep", "trace.jsonl", "--l1", "4blk,6blk", "--l2", "8blk",
         "--policy", "exclusive,write_back"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_function_returns_what_its_command_prints(place, name):
    function, command = CALLS[name]
    document = json.loads(json.dumps(function()))
    assert document == printed(*command)
    kind = document["schema"].removeprefix("kvbudget.").partition("/")[0]
    schema = (resources.files("kvbudget") / "schemas" / f"{kind}.json").read_text()
    jsonschema.validate(document, json.loads(schema))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra profile")
def test_profile(place):
    document = api.profile("tiny", device="fake", gpu="l4", record=place / "r.json")
    again = json.loads(json.dumps(api.profile(replay=place / "r.json")))
    assert again["result"] == document["result"]
    assert again == printed("profile", "--replay", place / "r.json")


def test_watch_is_an_iterator_of_readings(place):
    lines = [encode(reading) for reading in quiet(6, 2)]
    (place / "readings.jsonl").write_bytes(b"\n".join(lines))
    got = list(api.watch(replay=place / "readings.jsonl"))
    assert len(got) == 3
    schema = (resources.files("kvbudget") / "schemas" / "watch.json").read_text()
    for document in json.loads(json.dumps(got)):
        jsonschema.validate(document, json.loads(schema))


def test_every_command_has_its_function():
    wanted = {"explain_log", "oom_triage", "derive", "plan", "diff", "profile", "gate", "watch",
              "residency_window", "residency_links", "residency_curve", "residency_simulate",
              "residency_sweep"}  # fmt: skip
    assert wanted == set(api.__all__) - {"Document"}
    for name in wanted:
        function = getattr(api, name)
        assert function.__doc__
        assert inspect.signature(function).return_annotation != inspect.Signature.empty


def test_a_stream_is_a_log():
    assert api.explain_log(io.BytesIO(START.read_bytes()))["engine"] == "vllm"


def test_errors_are_typed(place):
    with pytest.raises(InputError):
        api.explain_log(place / "no.log")
    with pytest.raises(InputError, match="one engine"):
        api.plan("m", engine="both", gpu="h200")
    with pytest.raises(MissingFact):
        api.derive("m")
    with pytest.raises(InputError, match="unknown policy"):
        api.residency_simulate("trace.jsonl", "4blk", policy="fifo")


def test_importing_the_library_is_light():
    code = (
        "import sys; from kvbudget import api; "
        "print(sorted({'torch', 'rich', 'typer', 'numpy', 'yaml', 'pynvml'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_page_about_the_library_runs(capsys, monkeypatch):
    page = (SAMPLES.parent / "library.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(SAMPLES.parents[1])
    exec(code, {})
    version, cause, seconds = capsys.readouterr().out.splitlines()
    assert version.startswith("0.25.1 ")
    assert (cause, seconds) == ("vram.logprobs_spike", "445.632")
    for name in ("explain_log", "oom_triage", "derive", "plan", "diff", "profile", "gate", "watch"):
        assert f"`{name}`" in page


def test_the_package_alone_gives_the_library():
    code = "import sys, kvbudget; assert 'kvbudget.api' not in sys.modules; kvbudget.api.derive"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_start_up_log_of_another_engine_is_refused():
    with pytest.raises(InputError, match="it is a log of sglang"):
        api.oom_triage(CRASH, startup_log=SAMPLES / "sglang-tp2.log")
    with pytest.raises(InputError, match="no line of a known engine"):
        api.oom_triage(CRASH, startup_log=io.BytesIO(b"nothing here\n"))
