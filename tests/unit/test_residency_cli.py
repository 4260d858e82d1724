"""The residency commands through the program: documents, schemas, figures, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files

import pytest
from typer.testing import CliRunner

from kvbudget import api
from kvbudget.cli.app import app
from kvbudget.errors import InputError

jsonschema = pytest.importorskip("jsonschema")
RUN = CliRunner()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KVBUDGET_CACHE_DIR", str(tmp_path / "kept"))


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "talk.jsonl"
    with path.open("w") as out:
        for k in range(60):
            talk = k % 6
            turns = k // 6 + 1
            ids = [0, *range(100 * talk + 1, 100 * talk + 1 + 2 * turns)]
            row = {"timestamp": 9000 * k, "input_length": 16 * len(ids) - 5, "hash_ids": ids}
            out.write(json.dumps({**row, "output_length": 9}) + "\n")
    return str(path)


def invoke(*args):
    result = RUN.invoke(app, ["residency", *args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*args):
    got = json.loads(invoke(*args, "--format", "json"))
    name = got["schema"].removeprefix("kvbudget.").removesuffix("/1")
    schema = json.loads(files("kvbudget.schemas").joinpath(f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(got, schema)
    return got


def test_windows_of_the_closed_form():
    got = document("window", "--l1", "445632tok", "--l2", "891264tok", "--rate", "2000")
    assert got["windows"][0]["seconds"] == pytest.approx(222.816)
    assert got["windows"][1]["inclusive_seconds"] == pytest.approx(445.632)
    assert got["windows"][1]["exclusive_seconds"] == pytest.approx(668.448)
    assert any("3.7 and 7.4 min" in note for note in got["notes"])


def test_windows_take_bytes_and_blocks(trace):
    got = document("window", "--l1", "1MiB", "--bytes-per-token", "1024", "--rate", "8")
    assert got["windows"][0]["seconds"] == 128
    got = document(
        "window", "--l1", "10blk", "--l2", "30blk", "--block-tokens", "16", "--rate", "8",
        "--policy", "write_back", "--trace", trace,
    )  # fmt: skip
    assert got["windows"][1]["seconds"] is None
    assert len(got["working_set"]) == 3
    with pytest.raises(InputError, match="bytes is a token"):
        invoke("window", "--l1", "1MiB", "--rate", "8")


def test_links():
    got = document("links", "--bytes-per-token", "131072", "--prefill-rate", "22000")
    rows = {row["name"]: row for row in got["links"]}
    assert rows["pcie5x16"]["read_threshold_tok_s"] == 488281.25
    assert rows["pcie5x16"]["swap_threshold_tok_s"] == 244140.625
    assert round(rows["pcie5x16"]["ratio"], 2) == 22.19
    assert rows["pcie5x16"]["verdict"] == "fetch"
    assert rows["10gbe"]["verdict"] == "recompute"


def test_break_even_is_where_the_times_cross():
    got = document(
        "links", "--bytes-per-token", "1000", "--prefill-rate", "1000", "--link", "x=2MB/s@1s"
    )
    tokens = got["links"][0]["break_even_tokens"]
    assert 1 + tokens / 2000 < tokens / 1000
    assert 1 + (tokens - 1) / 2000 >= (tokens - 1) / 1000


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_every_command_speaks_to_people(trace, form):
    sizes = ["--l1", "12blk", "--l2", "40blk", "--block-tokens", "16"]
    for args in (
        ["window", "--l1", "10tok", "--rate", "1"],
        ["links", "--bytes-per-token", "1000"],
        ["curve", trace],
        ["simulate", trace, *sizes, "--policy", "write_back", "--windows"],
        ["sweep", trace, *sizes],
        ["report", trace, *sizes],
    ):
        assert invoke(*args, "--format", form).strip()


def test_curve_agrees_with_simulate(trace):
    got = document("curve", trace, "--block-tokens", "16", "--at", "5,20,1000")
    for point in got["points"]:
        size = f"{point['capacity_blocks']}blk"
        one = document("simulate", trace, "--block-tokens", "16", "--l1", size)
        assert one["l1_hit_blocks"] == point["hit_blocks"]
        assert one["hit_tokens"] == point["hit_tokens"]
    whole = document("curve", trace)
    assert whole["points"][-1]["hit_blocks"] == whole["ceiling_hit_blocks"]


def test_sweep_is_the_same_on_every_executor(trace):
    args = ["sweep", trace, "--l1", "8blk,16blk", "--l2", "24blk,48blk", "--l3", "0,inf"]
    serial = document(*args, "--executor", "serial")
    assert document(*args, "--executor", "local", "-j", "3") == serial
    assert len(serial["cells"]) == 2 + 4 * 6 + 4 * 3


def test_report_and_its_page(trace, tmp_path):
    args = [
        "report", trace, "--l1", "12blk", "--l2", "40blk", "--block-tokens", "16",
        "--bytes-per-token", "131072", "--prefill-rate", "9000", "--gpu-cost", "2",
        "--host-cost", "1",
    ]  # fmt: skip
    got = document(*args)
    shares = got["gap_shares"]
    assert sum(shares[k] for k in ("below_w1", "w1_to_w2", "beyond")) == pytest.approx(1)
    assert len(got["policies"]) == 7
    page = invoke(*args, "--format", "html")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    data = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(data) == got


def test_a_small_write_through_pool_is_the_wrong_policy(trace):
    sizes = ["--l1", "70blk", "--l2", "70blk", "--block-tokens", "16"]
    got = document("report", trace, *sizes, "--bytes-per-token", "9")
    assert got["verdict"]["answer"] == "wrong policy"
    assert any("L2 <= L1" in note for note in got["notes"])


@pytest.mark.parametrize(
    "args",
    [
        ["simulate", "no-such-file", "--l1", "5blk"],
        ["simulate", "TRACE", "--l1", "5blk", "--policy", "mru"],
        ["simulate", "TRACE", "--l1", "0blk"],
        ["simulate", "TRACE", "--l1", "5blk", "--l2", "5blk"],
        ["simulate", "TRACE", "--l1", "5blk", "--policy", "exclusive", "--l3", "inf"],
        ["links", "--prefill-rate", "5"],
        ["links", "--bytes-per-token", "5", "--link", "carrier-pigeon"],
        ["window", "--l1", "5tok", "--rate", "0"],
        ["sweep", "TRACE", "--l1", "5blk", "--executor", "abacus"],
        ["report", "TRACE"],
    ],
)
def test_bad_usage_is_an_input_error(trace, args):
    with pytest.raises(InputError):
        invoke(*[trace if a == "TRACE" else a for a in args])


def test_plain_python_gives_the_same_integers(trace):
    args = ["simulate", trace, "--l1", "12blk", "--l2", "30blk", "--l3", "50blk"]
    args += ["--policy", "write_back", "--block-tokens", "16", "--windows"]
    fast = document(*args)
    out = subprocess.run(
        [sys.executable, "-m", "kvbudget", "residency", *args, "--format", "json"],
        capture_output=True, check=True, env={**os.environ, "KVBUDGET_PURE_PYTHON": "1"},
    )  # fmt: skip
    slow = json.loads(out.stdout)
    del slow["notes"], fast["notes"]
    assert slow == fast


@pytest.mark.parametrize(
    ("release", "invariant", "inserts"),
    [
        ("sglang@0.5.2", "refuse", 2),
        ("sglang@0.5.19.post1", "refuse", 2),
        ("sglang@0.5.20", "repair", 2),
        ("sglang@0.5.23", "repair", 1),
        ("vllm@0.20.0", "repair", 1),
    ],
)
def test_a_release_sets_its_counting_rules(trace, release, invariant, inserts):
    sizes = ["--l1", "12blk", "--l2", "40blk", "--block-tokens", "16"]
    how = ["--policy", "write_through_selective", "--engine-version", release]
    config = document("simulate", trace, *sizes, *how)["config"]
    assert (config["backup_invariant"], config["inserts_per_request"]) == (invariant, inserts)
    with pytest.raises(InputError, match="no rules known"):
        invoke("simulate", trace, *sizes, *how[:-1], "sglang@0.4.0")


@pytest.mark.parametrize(
    ("policy", "engine"), [("write_back", "sglang"), ("vllm_eager", "vllm"), ("lru", None)]
)
def test_the_report_takes_its_device_pool_from_derive(trace, tmp_path, policy, engine):
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 8192,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    card = {"model": str(tmp_path), "gpu": "h100-80gb"}
    pool = api.derive(**card, engine=engine)["result"]["kv_cache_tokens"]
    got = document(
        "report", trace, "--policy", policy, "--model", str(tmp_path), "--gpu", "h100-80gb",
        "--block-tokens", "16",
    )  # fmt: skip
    assert got["config"]["l1_blocks"] == pool // 16
    assert any("L1 is derived" in line for line in got["assumptions"])
    with pytest.raises(InputError, match="no pool"):
        invoke("report", trace, "--model", str(tmp_path), "--gpu", "t4")
