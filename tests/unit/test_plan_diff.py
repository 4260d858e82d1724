"""`kvbudget plan` inverts `derive`; `kvbudget diff` names the flag that moved a term."""

from __future__ import annotations

import json
from importlib import resources

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import LLAMA_8B, LLAMA_70B
from typer.testing import CliRunner

from kvbudget.budget import Amount
from kvbudget.cli.app import app
from kvbudget.derive.assemble import derive
from kvbudget.derive.catalogue import find_gpu
from kvbudget.derive.request import Request
from kvbudget.diff.compare import compare
from kvbudget.diff.sides import Side
from kvbudget.errors import InputError, KvbudgetError
from kvbudget.model.config import model_from_config
from kvbudget.plan.search import Asked
from kvbudget.plan.solve import solve

GIB = 2**30
LLAMA = model_from_config(LLAMA_8B, name="Llama-3-8B")
H100 = find_gpu("h100-80gb")


def schema(name):
    return json.loads((resources.files("kvbudget") / "schemas" / f"{name}.json").read_text())


@pytest.fixture
def folder(tmp_path):
    for name, config in (("llama", LLAMA_8B), ("llama70", LLAMA_70B)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    return tmp_path


def call(*args):
    result = CliRunner().invoke(app, [str(a) for a in args])
    if isinstance(result.exception, KvbudgetError):
        return result.exception.exit_code, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


@given(st.sampled_from(["vllm", "sglang"]), st.integers(512, 8192), st.integers(1, 60))
@settings(max_examples=8, deadline=None)
def test_plan_inverts_derive(engine, context, concurrency):
    request = Request(engine, None, LLAMA, H100)
    options = solve(request, Asked(context, concurrency))
    served = [option for option in options if option.verdict != "no"]
    assert served
    for option in served:
        again = derive(Request(engine, None, LLAMA, H100, flags=option.flags))
        assert again.fits
        assert again.amount("max_concurrency").value >= concurrency
        share = next(k for k in option.flags if k.startswith(("gpu_mem", "mem_frac")))
        less = option.flags[share] - 0.01
        if option.verdict == "tight" and less >= 0.01:
            flags = {**option.flags, share: round(less, 2)}
            below = derive(Request(engine, None, LLAMA, H100, flags=flags))
            sure = below.amount("max_concurrency").low >= concurrency
            assert not sure


def test_the_longest_context_and_the_one_after():
    llama = model_from_config({**LLAMA_8B, "max_position_embeddings": 131072}, name="m")
    flags = {"kv_cache_dtype": "auto"}
    option = solve(Request("vllm", None, llama, H100, flags=flags), Asked(None, 16))[-1]
    length = option.flags["max_model_len"]
    assert option.derived.amount("max_concurrency").value >= 16
    longer = {**option.flags, **flags, "max_model_len": length + 1}
    after = derive(Request("vllm", None, llama, H100, flags=longer))
    assert after.amount("max_concurrency").value < 16


def test_plan_json_and_exit_codes(folder):
    code, text = call("plan", folder / "llama", "--gpu", "h100-80gb", "--context", "8k",
                      "--concurrency", "40", "--format", "json")  # fmt: skip
    got = json.loads(text)
    assert code == 0
    jsonschema.validate(got, schema("plan"))
    assert got["options"][0]["verdict"] == "fits"
    assert got["options"][0]["flags"]["max_model_len"] == 8000
    assert got["options"][0]["steps"]
    code, text = call("plan", folder / "llama70", "--gpu", "l4", "--context", "8192",
                      "--concurrency", "4", "--format", "json")  # fmt: skip
    assert code == 1
    assert {o["verdict"] for o in json.loads(text)["options"]} == {"no"}
    assert call("plan", folder / "llama", "--concurrency", "4")[0] == 4
    assert call("plan", folder / "llama", "--gpu", "h200", "--context", "long")[0] == 2


def test_more_cards_serve_what_one_cannot(folder):
    code, text = call("plan", folder / "llama70", "--gpu", "h100-80gb", "--gpus", "4", "--context",
                      "8192", "--concurrency", "16", "--format", "json")  # fmt: skip
    assert code == 0
    assert all(o["flags"]["tensor_parallel_size"] >= 2 for o in json.loads(text)["options"])


def test_the_largest_safe_share_keeps_a_margin(folder):
    _, text = call("plan", folder / "llama", "--gpu", "h100-80gb", "--format", "json")
    shares = [o for o in json.loads(text)["options"] if "gpu_memory_utilization" in o["flags"]]
    assert shares
    for option in shares:
        assert option["margin_memory"] > 0.02 * 79 * GIB


def diffed(folder, *change, base=()):
    for name, extra in (("a", base), ("b", change)):
        assert call("derive", folder / "llama", "--gpu", "h100-80gb", "--format", "json",
                    "-o", folder / f"{name}.json", *extra)[0] == 0  # fmt: skip
    code, text = call("diff", folder / "a.json", folder / "b.json", "--format", "json")
    assert code == 0
    got = json.loads(text)
    jsonschema.validate(got, schema("diff"))
    return {row["name"]: row for row in got["terms"]}


def test_without_graphs(folder):
    rows = diffed(folder, "--enforce-eager")
    assert rows["cuda_graph_memory_applied"]["b"] == 0
    assert rows["kv_cache_memory"]["delta"] == -rows["cuda_graph_memory_applied"]["delta"]
    assert rows["kv_cache_memory"]["cause"] == "flag enforce_eager"
    assert "peak_activation_memory" not in rows


def test_without_the_estimate_the_pool_grows_by_it(folder):
    rows = diffed(folder, "--env", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0")
    assert rows["kv_cache_memory"]["delta"] == -rows["cuda_graph_memory_applied"]["delta"] > 0
    assert "cuda_graph_memory" not in rows  # the graphs are captured all the same


def test_a_larger_batch_moves_the_activations(folder):
    rows = diffed(folder, "--max-num-batched-tokens", "32768")
    assert rows["peak_activation_memory"]["delta"] > 0
    assert rows["peak_activation_memory"]["cause"] == "flag max_num_batched_tokens"
    assert "weights_memory" not in rows


def test_two_versions(folder):
    rows = diffed(folder, "--engine-version", "0.25.1", base=("--engine-version", "0.17.1"))
    assert rows["requested_memory"]["cause"] == "version"
    assert "default gpu_memory_utilization 0.9 -> 0.92" in rows["requested_memory"]["explanation"]
    assert {row["cause"] for row in rows.values()} == {"version"}  # nobody set a flag
    rows = diffed(folder, "--engine-version", "0.25.1", "--gpu-memory-utilization", "0.95",
                  base=("--engine-version", "0.17.1"))  # fmt: skip
    assert rows["requested_memory"]["cause"] == "flag gpu_memory_utilization"
    assert rows["peak_activation_memory"]["cause"] == "version"


def test_figures_that_overlap_did_not_move():
    a = Side("a", "vllm", "0.33.0", {"weights_memory": Amount(100, 95, 105, "B")})
    b = Side("b", "vllm", "0.33.0", {"weights_memory": Amount(104, 99, 109, "B")})
    assert compare(a, b) == []


def test_what_only_one_side_states_has_no_delta():
    a = Side("a", "vllm", "0.33.0", {"weights_memory": Amount.exact(GIB, "B")})
    row = compare(a, Side("b", "vllm", "0.33.0", {}))[0]
    assert (row.b, row.delta, row.cause) == (None, None, "unexplained")


def test_two_logs(tmp_path):
    lines = ("INFO 11-30 02:25:20 [gpu_worker.py:773] Available KV cache memory: {} GiB\n",
             "INFO 11-30 02:25:21 [kv_cache_utils.py:1061] GPU KV cache size: {} tokens\n")  # fmt: skip
    for name, gib, tokens in (("a.log", "54.40", "445,632"), ("b.log", "55.23", "452,432")):
        text = lines[0].format(gib) + lines[1].format(tokens)
        (tmp_path / name).write_text(text)
    code, text = call("diff", tmp_path / "a.log", tmp_path / "b.log", "--format", "json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(text)["terms"]}
    assert rows["kv_cache_tokens"]["delta"] == 6_800
    assert round(rows["kv_cache_memory"]["delta"] / GIB, 2) == 0.83


def test_an_input_of_another_kind_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"schema": "kvbudget.watch/1"}')
    (tmp_path / "y.log").write_text("nothing here\n")
    assert call("diff", tmp_path / "x.json", tmp_path / "x.json")[0] == InputError.exit_code
    assert call("diff", tmp_path / "y.log", tmp_path / "y.log")[0] == 2
    assert call("diff", tmp_path / "none", tmp_path / "none")[0] == 2


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_text_and_markdown(folder, form):
    for command in ("derive", "plan"):
        code, text = call(command, folder / "llama", "--gpu", "h100-80gb", "--format", form)
        assert code == 0
        assert "num_gpu_blocks" in text or "N = " in text
    _, both = call(
        "derive", folder / "llama", "--gpu", "h200", "--engine", "both", "--format", form
    )
    assert "outside_memory" in both


def test_two_logs_name_the_switch_that_was_turned(tmp_path):
    head = "Initializing a V1 LLM engine (v0.25.1) with config: model='m', kv_cache_dtype=auto, "
    for name, eager, pool in (("a", False, "50.00"), ("b", True, "50.80")):
        (tmp_path / f"{name}.log").write_text(
            f"{head}enforce_eager={eager}, seed=0\nAvailable KV cache memory: {pool} GiB\n"
        )
    code, text = call("diff", tmp_path / "a.log", tmp_path / "b.log", "--format", "json")
    assert code == 0
    (row,) = json.loads(text)["terms"]
    assert (row["name"], row["cause"]) == ("kv_cache_memory", "flag enforce_eager")


def test_a_log_without_graphs_derives_without_graphs(folder):
    log = folder / "b.log"
    log.write_text(
        "Initializing a V1 LLM engine (v0.25.1) with config: model='m', kv_cache_dtype=fp8, "
        "enforce_eager=True, seed=0\nModel loading took 14.99 GiB memory and 3.4 seconds\n"
    )
    code, text = call("derive", folder / "llama", "--gpu", "h200", "--from-log", log,
                      "--format", "json")  # fmt: skip
    assert code == 0
    got = json.loads(text)
    assert got["result"]["bytes_per_token"] == 65536
    graphs = next(s for s in got["steps"] if s["name"] == "cuda_graph_memory_applied")
    assert graphs["value"] == 0


def test_a_role_that_the_engine_spells_its_own_way_is_a_changed_flag(tmp_path):
    """SGLang's log says tp_size; the fact is tensor_parallel_size, a setting and no figure."""
    text = (
        "[2026-01-05 10:00:00] server_args=ServerArgs(model_path='a/b', mem_fraction_static=0.8, tp_size={tp})\n"
        "[2026-01-05 10:00:01 TP0] Load weight begin. avail mem=39.00 GB\n"
        "[2026-01-05 10:00:09 TP0] Load weight end. type=X, dtype=torch.bfloat16, "
        "avail mem={left}.00 GB, mem usage={weights}.00 GB.\n"
    )
    for name, tp, weights in (("a.log", 2, 20), ("b.log", 4, 10)):
        (tmp_path / name).write_text(text.format(tp=tp, weights=weights, left=39 - weights))
    code, said = call("diff", tmp_path / "a.log", tmp_path / "b.log", "--format", "json")
    assert code == 0
    found = json.loads(said)
    assert found["flags"] == [{"name": "tp_size", "a": 2, "b": 4}]
    causes = {row["name"]: row["cause"] for row in found["terms"]}
    assert "tensor_parallel_size" not in causes
    assert causes["weights_memory"] == "flag tp_size"
