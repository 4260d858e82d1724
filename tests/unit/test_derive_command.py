"""`kvbudget derive` through the public command: figures, laws, exit codes, JSON shape."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib import resources

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import DEEPSEEK_V3, GEMMA3_27B, LLAMA_8B, LLAMA_70B
from typer.testing import CliRunner

from kvbudget.cli.app import app
from kvbudget.derive.assemble import derive
from kvbudget.derive.catalogue import find_gpu
from kvbudget.derive.command_line import parse_command
from kvbudget.derive.flags import Machine, default_of, load_flags
from kvbudget.derive.request import Request, parse_stated
from kvbudget.errors import InputError, KvbudgetError
from kvbudget.knowledge.where import knowledge_dir
from kvbudget.knowledge.yamlfile import load_yaml
from kvbudget.model.config import model_from_config

GIB = 2**30
LLAMA = model_from_config(LLAMA_8B, name="Llama-3-8B")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, config in (("llama", LLAMA_8B), ("deepseek", DEEPSEEK_V3), ("gemma", GEMMA3_27B),
                         ("llama70", LLAMA_70B)):  # fmt: skip
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(config))
    return root


def call(*args):
    result = CliRunner().invoke(app, ["derive", "--format", "json", *map(str, args)])
    if isinstance(result.exception, KvbudgetError):
        return result.exception.exit_code, None
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def schema(name):
    return json.loads((resources.files("kvbudget") / "schemas" / f"{name}.json").read_text())


def test_the_chapter_from_a_stated_residual(models):
    code, got = call(models / "llama", "--engine", "vllm", "--gpu-memory", "79.6GiB",
                     "--engine-version", "0.25.1", "--set", "kv_cache_memory=54.4GiB")  # fmt: skip
    assert code == 0
    result = got["result"]
    assert round(result["requested_memory"] / GIB, 1) == 73.2
    assert result["num_gpu_blocks"] == 27_852
    assert result["kv_cache_tokens"] == 445_632
    assert int(result["max_concurrency"]) == 54
    assert result["bytes_per_token"] == 131_072
    step = next(s for s in got["steps"] if s["name"] == "num_gpu_blocks")
    assert "58,411,555,225 // 65,536 // 32" in step["substituted"]
    weights = next(t for t in got["terms"] if t["name"] == "weights_memory")
    assert round(weights["value"] / GIB, 2) == 14.96


def test_the_gain_of_a_higher_utilisation():
    card = {"gpu_memory": int(79.6 * GIB), "model": LLAMA, "stated": parse_stated(
        ["peak_activation_memory=1.4GiB", "non_torch_memory=1.79GiB",
         "cuda_graph_memory_estimate=0.68GiB", "weights_memory=14.96GiB"],
        dict.fromkeys(("peak_activation_memory", "non_torch_memory", "cuda_graph_memory_estimate",
                       "weights_memory"), "B"))}  # fmt: skip
    pools = [derive(Request("vllm", "0.33.0", flags={"gpu_memory_utilization": u}, **card))
             .amount("kv_cache_memory").value for u in (0.92, 0.98)]  # fmt: skip
    assert round(pools[0] / GIB, 1) == 54.4
    assert round((pools[1] / pools[0] - 1) * 100) == 9


@pytest.mark.parametrize("engine", ["vllm", "sglang", "both"])
@pytest.mark.parametrize("name", ["llama", "deepseek", "gemma"])
def test_the_json_has_the_published_shape(models, engine, name):
    code, got = call(models / name, "--engine", engine, "--gpu", "h200", "-tp", "8",
                     "--tp-size", "8")  # fmt: skip
    assert code in (0, 1)
    jsonschema.validate(got, schema("derive"))


def test_both_engines_and_a_gap_that_adds_up(models):
    code, got = call(models / "llama", "--engine", "both", "--gpu", "H100-80GB")
    assert code == 0
    assert [one["engine"] for one in got["engines"]] == ["vllm", "sglang"]
    names = [row["name"] for row in got["gap"]]
    upto = got["gap"][: names.index("kv_cache_memory") + 1]
    assert sum(row["delta"] for row in upto) == 0
    assert {row["cause"] for row in got["gap"]} == {"engine"}


def test_a_pasted_command_line(models):
    code, got = call(
        models / "llama", "--gpu", "h100-80gb", "--", "VLLM_USE_V1=1", "vllm", "serve", "meta/x",
        "--gpu-memory-utilization=0.8", "-tp", "2", "--max_model_len", "4k", "--enforce-eager",
        "--port", "8001", "--no-such-flag", "7",
    )  # fmt: skip
    assert code == 0
    flags = {k: v["value"] for k, v in got["flags"].items()}
    assert flags["gpu_memory_utilization"] == 0.8
    assert flags["tensor_parallel_size"] == 2
    assert flags["max_model_len"] == 4000
    assert any("--no-such-flag" in note for note in got["notes"])
    graphs = [t for t in got["terms"] if t["name"] == "cuda_graph_memory_estimate"]
    assert graphs[0]["value"] == 0


@pytest.mark.parametrize(
    "flag", ["-O0", "-O.cudagraph_mode=NONE", "--compilation-config={\"cudagraph_mode\": \"NONE\"}",
             "--compilation-config.cudagraph_mode=NONE", "--enforce-eager"],
)  # fmt: skip
def test_every_way_to_do_without_graphs(models, flag):
    _, got = call(models / "llama", "--gpu", "h100-80gb", flag)
    graphs = [t for t in got["terms"] if t["name"] == "cuda_graph_memory_estimate"]
    assert graphs[0]["value"] == 0


def test_what_is_not_modelled_is_said(models):
    _, got = call(models / "llama", "--gpu", "h100-80gb", "-q", "fp8")
    assert any("--quantization" in note for note in got["notes"])


def test_a_card_by_size_alone(models):
    code, got = call(models / "llama", "--engine", "sglang", "--gpu-memory", "79.2GiB")
    assert code == 0
    smi = next(t for t in got["terms"] if t["name"] == "smi_memory_mib")
    assert smi["provenance"]["kind"] == "modelled"
    assert smi["low"] < smi["value"] < smi["high"]


def test_exit_codes(models):
    assert call(models / "llama70", "--gpu", "h100-80gb")[0] == 1  # weights do not fit
    code, got = call(models / "llama", "--gpu", "h100-80gb", "--max-model-len", "8192",
                     "--set", "kv_cache_memory=0.5GiB")  # fmt: skip
    assert code == 1
    assert got["result"]["max_model_len_that_fits"] == 4080  # 256 blocks, one of them the null one
    assert call(models / "llama")[0] == 4  # no card
    assert call("--gpu", "h100-80gb", "--engine", "vllm")[0] == 4  # no model
    assert call(models / "nowhere/config.json", "--gpu", "h100-80gb")[0] == 2
    assert call(models / "llama", "--gpu", "abacus")[0] == 2
    assert call(models / "llama", "--gpu", "h100-80gb", "--engine", "x")[0] == 2
    card = (models / "llama", "--gpu", "h100-80gb")
    assert call(*card, "--set", "nothing")[0] == 2
    assert call(*card, "--set", "weight_memory=3GiB")[0] == 2
    assert call(*card, "--set", "weights_memory=-5")[0] == 2
    assert call(*card, "--gpu-memory", "0")[0] == 2


def test_length_fitted_to_the_memory(models):
    code, got = call(models / "gemma", "--gpu", "h100-80gb", "--max-model-len", "-1",
                     "--engine-version", "0.25.1", "--set", "kv_cache_memory=3GiB")  # fmt: skip
    assert code == 0
    assert 0 < got["result"]["max_model_len"] < 131072
    assert got["result"]["max_concurrency"] >= 1


def test_the_v0_engine_by_environment(models):
    _, got = call(models / "llama", "--gpu", "h100-80gb", "--engine-version", "0.8.5",
                  "--env", "VLLM_USE_V1=0")  # fmt: skip
    assert got["files"] == ["vllm/pool-v0-0.7.yaml", "vllm/blocks-flat.yaml"]


@given(st.integers(20, 200), st.integers(0, 60), st.sampled_from(["0.8.5", "0.19.0", "0.33.0"]))
@settings(max_examples=25, deadline=None)
def test_more_memory_never_means_fewer_tokens(gib, more, version):
    def tokens(size):
        found = derive(Request("vllm", version, LLAMA, gpu_memory=size * GIB))
        return found.amount("kv_cache_tokens").value

    assert tokens(gib) <= tokens(gib + more)


@given(st.integers(64, 8000), st.integers(0, 8000), st.sampled_from(["0.8.5", "0.19.0", "0.33.0"]))
@settings(max_examples=25, deadline=None)
def test_a_longer_context_never_means_more_requests(length, more, version):
    def concurrency(tokens):
        flags = {"max_model_len": tokens}
        found = derive(Request("vllm", version, LLAMA, gpu_memory=80 * GIB, flags=flags))
        return found.amount("max_concurrency").value

    assert concurrency(length) >= concurrency(length + more)


@pytest.mark.parametrize("config", [LLAMA_8B, LLAMA_70B, DEEPSEEK_V3, GEMMA3_27B])
def test_tensor_parallelism_never_raises_bytes_of_a_rank(config):
    model = model_from_config(config, name="m")
    before = None
    for tp in (1, 2, 4, 8):
        flags = {"tensor_parallel_size": tp}
        got = derive(Request("vllm", "0.33.0", model, gpu_memory=1000 * GIB, flags=flags))
        now = [got.amount(n).value for n in ("weights_memory", "bytes_per_token")]
        assert before is None or all(a <= b for a, b in zip(now, before, strict=True))
        before = now


@pytest.mark.parametrize("gpu", ["h100-80gb", "l4", "h200"])
@pytest.mark.parametrize(
    "version", ["0.6.6.post1", "0.8.5", "0.11.2", "0.19.0", "0.25.1", "0.33.0"]
)
def test_every_interval_contains_its_best_value(gpu, version):
    got = derive(Request("vllm", version, LLAMA, find_gpu(gpu)))
    for step in got.derivation.steps:
        assert step.amount.low <= step.amount.value <= step.amount.high, step.name


def test_defaults_by_version_entry_point_and_card():
    flags = load_flags("vllm")
    u, tokens, seqs = (flags[n] for n in ("gpu_memory_utilization", "max_num_batched_tokens",
                                          "max_num_seqs"))  # fmt: skip
    big, small = Machine(79 * GIB, "H100-80GB"), Machine(24 * GIB, "L4")
    a100 = Machine(79 * GIB, "A100-80GB")
    assert [default_of(u, v, big) for v in ("0.17.1", "0.20.2")] == [0.9, 0.92]
    v1 = {"engine_core": "V1"}
    assert default_of(tokens, "0.25.1", big) == 8192
    assert default_of(tokens, "0.25.1", a100) == 2048
    assert default_of(tokens, "0.33.0", Machine(178 * GIB, "B200")) == 16384
    assert default_of(tokens, "0.25.1", Machine(79 * GIB, "H100", "llm")) == 16384
    assert default_of(seqs, "0.25.1", big) == 1024
    assert default_of(seqs, "0.25.1", small) == 256
    assert default_of(seqs, "0.7.3", Machine(24 * GIB, "L4", texts=v1)) == 1024


@pytest.mark.parametrize("file", sorted(knowledge_dir("formulas").rglob("*.yaml")), ids=str)
def test_plain_and_strict_loader_agree(file):
    import yaml

    assert yaml.load(file.read_bytes(), Loader=yaml.CSafeLoader) == load_yaml(file)


def test_command_lines_of_every_shape():
    line = parse_command("vllm", ["python", "-m", "vllm.entrypoints.openai.api_server", "--model",
                                  "m", "-tp4", "-O0", "--no-enable-prefix-caching"])  # fmt: skip
    assert line.model == "m"
    assert line.flags["tensor_parallel_size"] == 4
    assert line.flags["enable_prefix_caching"] is False
    assert parse_command("sglang", ["--tp", "8"]).flags == {"tp_size": 8}
    with pytest.raises(InputError, match="needs a value"):
        parse_command("vllm", ["--max-model-len"])
    with pytest.raises(InputError):
        parse_command("vllm", ["--gpu-memory-utilization", "lots"])


def test_heavy_libraries_stay_out(models):
    script = (
        "import sys\nfrom kvbudget.cli.app import app\n"
        f"sys.argv = ['kvbudget', 'derive', {str(models / 'deepseek')!r}, '--gpu', 'h200', '-tp', '8',"
        " '--format', 'json', '-o', '/dev/null']\n"
        "try:\n app()\nexcept SystemExit:\n pass\n"
        "print([m for m in ('torch', 'numpy', 'transformers', 'pynvml', 'numba') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("engine", "flag", "said"),
    [
        ("sglang", "-tp", "-tp (sglang spells it --tp-size)"),
        ("sglang", "--gpu-memory-utilization", "(sglang spells it --mem-fraction-static)"),
        ("vllm", "--tp-size", "(vllm spells it --tensor-parallel-size)"),
        ("vllm", "--max-model-lenn", "(did you mean --max-model-len?)"),
    ],
)
def test_a_flag_of_the_other_engine_is_told_by_the_name_it_has_here(models, engine, flag, said):
    code, got = call(models / "llama", "--engine", engine, "--gpu", "h100-80gb", flag, "2")
    assert code in (0, 1)
    assert any(said in note for note in got["notes"])


@pytest.mark.parametrize(
    ("said", "card"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000-Ada"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_card_by_the_name_that_its_driver_prints(said, card):
    assert find_gpu(said).name == card


@pytest.mark.parametrize("said", ["NVIDIA", "nvidia h", "tesla"])
def test_a_maker_alone_is_no_card(said):
    with pytest.raises(InputError):
        find_gpu(said)


def test_a_log_that_names_no_release_has_one_assumed_for_it(models, tmp_path):
    line = "INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: 30.5 GiB\n"
    banner = "INFO 01-02 03:04:04 [core.py:1] Initializing a V1 LLM engine (v0.11.2) with config: model='m'\n"
    for text, assumed in ((line, True), (banner + line, False)):
        (tmp_path / "s.log").write_text(text)
        _, got = call(models / "llama", "--gpu", "h100-80gb", "--from-log", tmp_path / "s.log")
        assert any("names no release" in note for note in got["notes"]) is assumed


def test_where_a_term_comes_from_is_a_public_word(models):
    """An unset flag is a flag whose source says so; `flags` says who set what."""
    _, got = call(models / "llama", "--gpu", "h100-80gb", "--max-model-len", "4096",
                  "--env", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0")  # fmt: skip
    terms = {term["name"]: term["provenance"] for term in got["terms"]}
    assert terms["max_model_len"] == {"kind": "flag", "source": "--max-model-len"}
    assert terms["gpu_memory_utilization"]["kind"] == "flag"
    assert "unset" in terms["gpu_memory_utilization"]["source"]
    assert got["flags"]["max_model_len"]["set"]
    assert got["flags"]["estimate_cuda_graphs"] == {"value": "off", "set": True}
    assert not got["flags"]["engine_core"]["set"]


WHAT_IF = (
    "INFO 01-02 03:04:04 [core.py:1] Initializing a V1 LLM engine (v0.25.1) with config: x\n"
    "INFO 01-02 03:04:04 [utils.py:2] non-default args: {'gpu_memory_utilization': 0.91}\n"
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: 50.25 GiB\n"
)


def what_if(models, tmp_path, *flags, text=WHAT_IF):
    (tmp_path / "s.log").write_text(text)
    _, got = call(models / "llama", "--gpu", "h100-80gb", "--from-log", tmp_path / "s.log", *flags)
    gave_way = any(n.startswith("kv_cache_memory of the log made way for") for n in got["notes"])
    return got, got["result"]["kv_cache_memory"], gave_way


def test_a_log_that_has_the_flag_keeps_its_figures(models, tmp_path):
    for flags in ((), ("--gpu-memory-utilization", "0.91")):
        assert what_if(models, tmp_path, *flags)[1:] == (round(50.25 * 2**30), False)


def test_the_logs_pool_moves_with_the_share_alone(models, tmp_path):
    """What is held back was measured, printed or not: requested_memory is all that moves."""
    got, pool, gave_way = what_if(models, tmp_path, "--gpu-memory-utilization", "0.83")
    total = next(t["value"] for t in got["terms"] if t["name"] == "total_memory")
    request = math.ceil(total * 0.83) - math.ceil(total * 0.91)
    assert (pool, gave_way) == (round(50.25 * 2**30) + request, False)
    (term,) = [t for t in got["terms"] if t["name"] == "kv_cache_memory"]
    assert term["provenance"]["kind"] == "derived"
    assert "s.log:3" in term["provenance"]["source"]
    assert (
        0.01 * 2**30 < term["high"] - term["low"] < 0.02 * 2**30
    )  # the printed digits, and the card's


def test_another_flag_or_an_unknown_share_has_the_terms_modelled(models, tmp_path):
    share = ("--gpu-memory-utilization", "0.83")
    _, both, gave_way = what_if(models, tmp_path, *share, "--max-num-batched-tokens", "16384")
    assert gave_way
    unsaid = "".join(line for line in WHAT_IF.splitlines(True) if "non-default" not in line)
    _, modelled, gave_way = what_if(models, tmp_path, *share, text=unsaid)
    assert gave_way
    _, carried, _ = what_if(models, tmp_path, *share)
    assert len({both, modelled, carried}) == 3
