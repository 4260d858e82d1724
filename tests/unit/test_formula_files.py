"""The formula files: self-test, eras, selection by version, worked figures of the vLLM ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbudget.errors import InputError, MissingFact
from kvbudget.formula.check import check_dir
from kvbudget.formula.drift import drift
from kvbudget.formula.evaluate import Facts, evaluate
from kvbudget.formula.interval import FormulaError, Interval
from kvbudget.formula.program import read_program
from kvbudget.formula.registry import load_engine
from kvbudget.formula.versions import holds, version_key
from kvbudget.knowledge.where import knowledge_dir

GIB = 2**30
FORMULAS = Path(knowledge_dir("formulas"))


def run_vllm(version, env=None, texts=None, tables=None, **numbers):
    engine = load_engine("vllm")
    chosen = {**engine.selectors(version, env or {}), **(texts or {})}
    facts = Facts({k: Interval.exact(v) for k, v in numbers.items()}, chosen, tables or {})
    return evaluate(engine.programs(version, chosen), facts)


def test_every_file_passes_its_own_examples():
    assert [str(problem) for problem in check_dir(FORMULAS)] == []


@pytest.mark.parametrize("version", load_engine("vllm").checked)
def test_every_release_read_has_arithmetic(version):
    engine = load_engine("vllm")
    for setting in ({}, {"VLLM_USE_V1": "0"}, {"VLLM_USE_V1": "1"}):
        found = engine.programs(version, engine.selectors(version, setting))
        assert [program.part for program in found][:2] == ["pool", "blocks"]


SUBTRACTION = {
    "total_memory": int(79.6 * GIB), "free_memory": 79 * GIB, "weights_memory": int(14.96 * GIB),
    "peak_activation_memory": int(1.4 * GIB), "non_torch_memory": int(1.79 * GIB),
    "cuda_graph_memory_estimate": int(0.68 * GIB), "cuda_graph_memory": int(0.5 * GIB),
}  # fmt: skip


def test_the_subtraction_of_the_newest_era():
    run = run_vllm("0.33.0", gpu_memory_utilization=0.92, **SUBTRACTION)
    assert round(run.numbers["requested_memory"].best / GIB, 2) == 73.23
    assert round(run.numbers["kv_cache_memory"].best / GIB, 2) == 54.40
    assert round(run.numbers["margin_memory"].best / GIB, 2) == 5.77
    high = run_vllm("0.33.0", gpu_memory_utilization=0.98, **SUBTRACTION)
    assert round(high.numbers["requested_memory"].best / GIB, 2) == 78.01
    assert round(high.numbers["margin_memory"].best / GIB, 2) == 0.99


def test_seven_eras_differ_where_they_should():
    u = {"gpu_memory_utilization": 0.9}
    rest = sum(SUBTRACTION[k] for k in ("weights_memory", "peak_activation_memory",
                                        "non_torch_memory"))  # fmt: skip
    total = SUBTRACTION["total_memory"]
    graphs = SUBTRACTION["cuda_graph_memory_estimate"]
    for version, env, rounded_up, applied in (
        ("0.6.6.post1", {"VLLM_USE_V1": "0"}, 0, 0), ("0.8.5", {"VLLM_USE_V1": "0"}, 0, 0),
        ("0.8.5", {"VLLM_USE_V1": "1"}, 0, 0), ("0.10.2", {}, 0, 0), ("0.17.1", {}, 1, 0),
        ("0.25.1", {}, 1, graphs), ("0.33.0", {}, 1, graphs),
    ):  # fmt: skip
        found = run_vllm(version, env, **u, **SUBTRACTION).numbers["kv_cache_memory"].best
        requested = total * 0.9
        whole = int(requested) + (1 if rounded_up and requested % 1 else 0)
        assert found == whole - rest - applied, version


def test_neighbours_count_only_in_the_first_v1():
    extra = {"gpu_memory_utilization": 0.9, **SUBTRACTION, "other_memory": 5 * GIB}
    old = run_vllm("0.8.5", {"VLLM_USE_V1": "1"}, **extra).numbers["kv_cache_memory"].best
    new = run_vllm("0.9.2", {}, **extra).numbers["kv_cache_memory"].best
    assert new - old == 5 * GIB


def test_the_suggestion_counts_graphs_twice_from_029_on():
    actual, buffer = SUBTRACTION["cuda_graph_memory"], 150 * 2**20
    applied = SUBTRACTION["cuda_graph_memory_estimate"]
    old = run_vllm("0.25.1", gpu_memory_utilization=0.92, **SUBTRACTION).numbers
    new = run_vllm("0.33.0", gpu_memory_utilization=0.92, **SUBTRACTION).numbers
    assert old["suggested_kv_cache_memory"].best == (
        old["kv_cache_memory"].best + applied - actual - buffer
    )
    assert new["suggested_kv_cache_memory"].best == new["kv_cache_memory"].best - actual - buffer
    assert new["kv_memory_of_suggestion"].best == new["kv_cache_memory"].best


def test_the_graph_estimate_can_be_switched_off():
    off = {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}
    on = run_vllm("0.25.1", gpu_memory_utilization=0.92, **SUBTRACTION).numbers["kv_cache_memory"]
    out = run_vllm("0.25.1", off, gpu_memory_utilization=0.92, **SUBTRACTION)
    gained = out.numbers["kv_cache_memory"].best - on.best
    assert gained == SUBTRACTION["cuda_graph_memory_estimate"]


LLAMA = [{"kind": "full", "layers": 32, "layer_token_bytes": 4096, "layer_state_bytes": 0,
          "layer_window": 0}]  # fmt: skip


def blocks(version, layers, pool, **facts):
    numbers = {"kv_pool_memory": pool, "block_size": 16, "max_model_len": 8192,
               "max_num_batched_tokens": 8192} | facts  # fmt: skip
    numbers.setdefault("model_max_len", numbers["max_model_len"])
    states = "some" if any(row["layer_state_bytes"] for row in layers) else "none"
    texts = {"state_layers": states, "async_scheduling": "off"}
    return run_vllm(version, {}, texts, {"layer_groups": layers}, **numbers)


@pytest.mark.parametrize("version", ["0.7.3", "0.8.5", "0.10.2", "0.17.1", "0.25.1", "0.33.0"])
def test_llama_3_8b_in_every_era(version):
    run = blocks(version, LLAMA, 58_411_555_225)
    assert run.numbers["num_gpu_blocks"].best == 27_852
    assert run.numbers["kv_cache_tokens"].best == 445_632
    assert int(run.numbers["max_concurrency"].best) == 54


def test_a_printed_size_is_an_interval_of_blocks():
    engine = load_engine("vllm")
    texts = engine.selectors("0.33.0", {}) | {"state_layers": "none"}
    printed = Interval(int(54.395 * GIB), int(54.4 * GIB), int(54.405 * GIB))
    numbers = {k: Interval.exact(v) for k, v in
               {"block_size": 16, "max_model_len": 8192, "model_max_len": 8192,
                "max_num_batched_tokens": 8192}.items()} | {"kv_cache_memory": printed}  # fmt: skip
    run = evaluate(engine.programs("0.33.0", texts), Facts(numbers, texts, {"layer_groups": LLAMA}))
    found = run.numbers["num_gpu_blocks"]
    assert (found.low, found.best, found.high) == (27_850, 27_852, 27_855)


def test_the_fit_check_leaves_out_the_null_block_from_029_on():
    one_request = 512 * 2_097_152
    assert blocks("0.25.1", LLAMA, one_request).numbers["fits"].best == 1
    assert blocks("0.33.0", LLAMA, one_request).numbers["fits"].best == 0
    assert blocks("0.33.0", LLAMA, one_request + 2_097_152).numbers["fits"].best == 1
    longest = blocks("0.33.0", LLAMA, one_request, model_max_len=131072)
    assert longest.numbers["max_model_len_that_fits"].best == 511 * 16


def test_missing_facts_are_named_not_guessed():
    run = run_vllm("0.33.0", total_memory=80 * GIB, gpu_memory_utilization=0.9)
    with pytest.raises(MissingFact) as caught:
        run.need("kv_cache_memory")
    assert "weights_memory" in caught.value.facts


def test_a_given_residual_needs_nothing_before_it():
    run = run_vllm("0.33.0", kv_cache_memory=54 * GIB)
    assert run.numbers["kv_pool_memory"].best == 54 * GIB


FILE = {
    "schema": "kvbudget.formula/1", "engine": "x", "part": "p", "versions": "*",
    "source": {"repo": "a/b"},
    "inputs": [{"name": "m", "unit": "B"}, {"name": "kind"}],
    "steps": [{"name": "r", "unit": "B", "doc": "d", "expr": "m", "source": {"path": "f.py"}}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expr": "m + unknown"}, "unknown name"), ({"unit": "tok"}, "says 'tok'"),
        ({"expr": "m + 1"}, "units"), ({"extra": 1}, "unknown key"), ({"call": "nope"}, "one of"),
        ({"unit": "furlong"}, "unknown unit"), ({"name": "m"}, "taken"), ({"over": "t"}, "no table"),
    ],
)  # fmt: skip
def test_a_bad_file_says_what_is_wrong(change, message):
    step = {**FILE["steps"][0], **change}
    with pytest.raises(Exception, match=message):
        read_program({**FILE, "steps": [step]}, "x.yaml")


def test_exactly_one_variant_applies():
    cases = [{"when": {"kind": "a"}, "expr": "m"}, {"when": {"kind": ["a", "b"]}, "expr": "2 * m"}]
    step = {k: v for k, v in FILE["steps"][0].items() if k != "expr"} | {"cases": cases}
    program = read_program({**FILE, "steps": [step]}, "x.yaml")
    assert (
        evaluate([program], Facts({"m": Interval.exact(4)}, {"kind": "b"})).numbers["r"].best == 8
    )
    for kind in ("a", "c"):
        with pytest.raises(FormulaError, match="variants apply"):
            evaluate([program], Facts({"m": Interval.exact(4)}, {"kind": kind}))


def test_version_order_and_ranges():
    order = ["0.9.1rc2", "0.9.1", "0.9.1.post1", "0.9.2", "0.10.0", "0.10.1.1"]
    assert sorted(order, key=version_key) == order
    assert holds("0.21.0rc1.dev3+gabc", ">=0.21")
    assert holds("0.8.x", ">=0.8.5,<0.9")
    assert not holds("0.19.0", ">=0.20")
    with pytest.raises(InputError):
        version_key("newest")


def test_drift_finds_anchors(tmp_path):
    worker = tmp_path / "vllm/v1/worker"
    worker.mkdir(parents=True)
    (worker / "utils.py").write_text("# first\ndef request_memory(): ...\n")
    found = {row.step: row for row in drift("vllm", tmp_path)}
    assert (found["requested_memory"].verdict, found["requested_memory"].line) == ("stands", 2)
    assert found["total_consumed"].verdict == "file gone"
    (tmp_path / "vllm/other.py").write_text("x = total_consumed\n")
    assert {r.step: r for r in drift("vllm", tmp_path)}["total_consumed"].verdict == "moved"


def test_drift_reads_the_folder_of_a_wheel(tmp_path):
    (tmp_path / "sglang/srt/mem_cache").mkdir(parents=True)
    file = tmp_path / "sglang/srt/mem_cache/memory_pool.py"
    file.write_text("\n" * 399 + "x\nself.req_to_token = torch.zeros(\n")
    found = {row.step: row for row in drift("sglang", tmp_path)}
    table = found["request_table_memory"]
    assert (table.verdict, table.line, table.cited) == ("stands", 401, "376-410")
    assert found["pool_tokens"].verdict == "file gone"
