"""The tables beside the formulas, against a second writing: data sheets, machine names, bounds."""

from __future__ import annotations

import re

import pytest

from kvbudget.derive.catalogue import card_names, find_gpu
from kvbudget.derive.flags import Machine, check_value, default_of, load_flags
from kvbudget.errors import InputError
from kvbudget.formula.registry import engine_names
from kvbudget.formula.versions import holds
from kvbudget.knowledge.where import knowledge_file
from kvbudget.knowledge.yamlfile import load_yaml
from kvbudget.units import GIB, MIB

# name: multiprocessors, compute capability, GB/s of device memory, GB/s to the host, MiB of
# nvidia-smi or amd-smi (None: not published)
DATA_SHEETS: dict[str, tuple[int, str | None, int, int | None, int | None]] = {
    "T4": (40, "7.5", 320, 16, 15360),
    "V100-16GB": (80, "7.0", 900, 16, 16 * 1024),
    "V100-32GB": (80, "7.0", 900, 16, 32 * 1024),
    "A10": (72, "8.6", 600, 32, 23028),
    "A10G": (80, "8.6", 600, 32, 23028),
    "A30": (56, "8.0", 933, 32, 24 * 1024),
    "A40": (84, "8.6", 696, 32, 46068),
    "A100-40GB": (108, "8.0", 1555, 32, 40 * 1024),
    "A100-80GB": (108, "8.0", 2039, 32, 80 * 1024),
    "A800-80GB": (108, "8.0", 2039, 32, 80 * 1024),
    "A6000": (84, "8.6", 768, 32, 49140),
    "RTX6000-Ada": (142, "8.9", 960, 32, 49140),
    "L4": (58, "8.9", 300, 32, 23034),
    "L40": (142, "8.9", 864, 32, 46068),
    "L40S": (142, "8.9", 864, 32, 46068),
    "L20": (92, "8.9", 864, 32, 46068),
    "H100-80GB": (132, "9.0", 3350, 64, 81559),
    "H100-PCIE-80GB": (114, "9.0", 2000, 64, 81559),
    "H100-NVL": (132, "9.0", 3900, 64, 95830),
    "H800": (132, "9.0", 3350, 64, 81559),
    "H20-96GB": (78, "9.0", 4000, 64, 97871),
    "H20-141GB": (78, "9.0", 4800, 64, 143771),
    "H200-141GB": (132, "9.0", 4800, 64, 143771),
    "GH200-96GB": (132, "9.0", 4000, 450, 97871),
    "GH200-144GB": (132, "9.0", 4900, 450, None),
    "B200-180GB": (148, "10.0", 8000, 64, 183359),
    "GB200-186GB": (152, "10.0", 8000, 450, 189471),
    "B300-288GB": (148, "10.3", 8000, 128, 275040),
    "GB300-288GB": (152, "10.3", 8000, 450, None),
    "GB10": (48, "12.1", 273, None, 124610),
    "RTX2080Ti": (68, "7.5", 352 * 14 // 8, 16, 11 * 1024),
    "RTX3080-10GB": (68, "8.6", 320 * 19 // 8, 32, 10 * 1024),
    "RTX3060-12GB": (28, "8.6", 192 * 15 // 8, 32, 12 * 1024),
    "RTX3090": (82, "8.6", 384 * 39 // 16, 32, 24 * 1024),
    "RTX3090Ti": (84, "8.6", 384 * 21 // 8, 32, 24564),
    "RTX4060Ti-16GB": (34, "8.9", 128 * 18 // 8, 16, 16380),
    "RTX4070TiSuper": (66, "8.9", 256 * 21 // 8, 32, 16376),
    "RTX4080": (76, "8.9", 717, 32, 16376),
    "RTX4090": (128, "8.9", 384 * 21 // 8, 32, 24564),
    "RTX5070Ti": (70, "12.0", 256 * 28 // 8, 64, 16303),
    "RTX5080": (84, "12.0", 256 * 30 // 8, 64, 16303),
    "RTX5090": (170, "12.0", 512 * 28 // 8, 64, 32607),
    "RTXPRO6000": (188, "12.0", 512 * 28 // 8, 64, 97887),
    "MI210": (104, None, 1638, 32, 65520),
    "MI250X": (110, None, 1638, 32, 65520),
    "MI300X": (304, None, 5300, 64, 196592),
    "MI308X": (80, None, 5300, 64, 196592),
    "MI325X": (304, None, 6000, 64, 262128),
    "MI350X": (256, None, 8000, 64, 294896),
    "MI355X": (256, None, 8000, 64, 294896),
}


@pytest.mark.parametrize("name", card_names())
def test_a_card_is_what_its_data_sheet_says(name: str):
    card = find_gpu(name)
    units, capability, memory, host, smi = DATA_SHEETS[name]
    assert (card.sm_count, card.compute_capability) == (units, capability)
    assert card.hbm_bytes_per_s == memory * 10**9
    assert card.host_link_bytes_per_s == (None if host is None else host * 10**9)
    assert card.smi_total == (None if smi is None else smi * MIB)


@pytest.mark.parametrize("name", card_names())
def test_what_a_driver_reports_lies_a_little_below_the_memory_built_in(name: str):
    card = find_gpu(name)
    assert card.total.low <= card.total.value <= card.total.high
    assert card.total.high - card.total.low <= card.total.value // 20
    if card.smi_total is not None:
        assert 0.93 * card.smi_total < card.total.value < card.smi_total + MIB


AWS = {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}
VCPUS_OF_G2 = {24: 2, 48: 4, 96: 8}
AZURE = {
    "NC64": 4, "NV72": 2, "NC48": 2, "NC96": 4, "NC80": 2, "ND96": 8,
}  # fmt: skip


def cards_of(machine: str) -> int:
    """Accelerators of a cloud machine, from how the three clouds build their names."""
    if machine.startswith("Standard_"):
        return AZURE.get(re.match(r"N[A-Z]\d+", machine.removeprefix("Standard_"))[0], 1)
    if "." in machine:
        return 8 if machine.startswith("p4") else AWS.get(machine.split(".")[1], 1)
    if machine.startswith("g2-"):
        return VCPUS_OF_G2.get(int(machine.rsplit("-", 1)[1]), 1)
    return int(machine.rsplit("-", 1)[1].removesuffix("g"))


def test_a_machine_has_as_many_cards_as_its_name_says():
    machines = load_yaml(knowledge_file("formulas", "gate", "hardware.yaml"))["machines"]
    assert len(machines) > 60
    for name, (card, count) in machines.items():
        assert count == cards_of(name), name
        assert find_gpu(card).name == card


VLLM, SGLANG = load_flags("vllm"), load_flags("sglang")
V0, V1 = {"engine_core": "V0"}, {"engine_core": "V1"}
# release, GiB of the card, its name, core -> (tokens, requests) of the server, of the LLM class
BATCHES = [
    ("0.6.6.post1", 80, "h100", V0, (2048, 256), None),
    ("0.6.6.post1", 80, "h100", V1, (2048, 1024), (8192, 1024)),
    ("0.7.3", 80, "h100", V1, (8192, 1024), (16384, 1024)),
    ("0.7.3", 80, "a100", V1, (2048, 1024), (8192, 1024)),
    ("0.8.5", 80, "a100", V1, (8192, 1024), (16384, 1024)),
    ("0.8.5", 40, "a100", V1, (2048, 256), (8192, 256)),
    ("0.9.2", 80, "a100", V1, (2048, 256), (8192, 256)),
    ("0.25.1", 80, "h100", V1, (8192, 1024), (16384, 1024)),
    ("0.25.1", 179, "b200", V1, (8192, 1024), (16384, 1024)),
    ("0.33.0", 80, "h100", V1, (8192, 1024), (16384, 1024)),
    ("0.33.0", 120, "gb10", V1, (2048, 256), (8192, 256)),
    ("0.33.0", 80, "a100", V1, (2048, 256), (8192, 256)),
    ("0.33.0", 179, "b200", V1, (16384, 1024), (16384, 1024)),
]


@pytest.mark.parametrize(
    "row", BATCHES, ids=lambda row: f"{row[0]}-{row[2]}-{row[3]['engine_core']}"
)
def test_default_batch_limits(row):
    version, size, device, texts, server, llm = row
    for entry, wanted in (("server", server), ("llm", llm)):
        machine = Machine(size * GIB, device, entry, texts)
        found = tuple(
            default_of(VLLM[name], version, machine)
            for name in ("max_num_batched_tokens", "max_num_seqs")
        )
        assert wanted is None or found == wanted


@pytest.mark.parametrize(("size", "tokens"), [(70, 8192), (69.99, 2048)])
def test_the_large_tier_begins_at_70_gib(size: float, tokens: int):
    machine = Machine(int(size * GIB), "h100", "server", V1)
    for version in ("0.8.5", "0.17.1", "0.33.0"):
        assert default_of(VLLM["max_num_batched_tokens"], version, machine) == tokens


DEFAULTS = {
    "vllm": {
        ("0.17.1", "gpu_memory_utilization"): 0.9, ("0.20.2", "gpu_memory_utilization"): 0.92,
        ("0.33.0", "block_size"): 16, ("0.10.2", "swap_space"): 4, ("0.33.0", "cpu_offload_gb"): 0,
        ("0.33.0", "optimization_level"): 2, ("0.8.5", "max_seq_len_to_capture"): 8192,
        ("0.8.5", "num_scheduler_steps"): 1, ("0.33.0", "long_prefill_token_threshold"): 0,
        ("0.33.0", "tensor_parallel_size"): 1, ("0.33.0", "pipeline_parallel_size"): 1,
        ("0.33.0", "data_parallel_size"): 1, ("0.33.0", "decode_context_parallel_size"): 1,
        ("0.33.0", "prefill_context_parallel_size"): 1, ("0.33.0", "nnodes"): 1,
        ("0.33.0", "node_rank"): 0, ("0.33.0", "mm_processor_cache_gb"): 4,
        ("0.33.0", "mm_ipc_gpu_memory_gb"): 0, ("0.33.0", "max_loras"): 1,
        ("0.33.0", "max_lora_rank"): 16, ("0.33.0", "max_logprobs"): 20, ("0.33.0", "port"): 8000,
        ("0.33.0", "api_server_count"): 1, ("0.33.0", "max_num_partial_prefills"): 1,
        ("0.33.0", "max_long_partial_prefills"): 1,
    },
    "sglang": {
        ("0.5.23", "max_prefill_tokens"): 16384, ("0.4.8", "page_size"): 1,
        ("0.5.23", "tp_size"): 1, ("0.5.23", "pp_size"): 1, ("0.5.23", "dp_size"): 1,
        ("0.5.23", "ep_size"): 1, ("0.5.23", "dcp_size"): 1,
        ("0.5.18", "swa_full_tokens_ratio"): 0.8, ("0.5.23", "mamba_full_memory_ratio"): 0.9,
        ("0.5.23", "cpu_offload_gb"): 0, ("0.5.23", "max_loras_per_batch"): 8,
        ("0.5.23", "schedule_conservativeness"): 1.0, ("0.5.9", "hicache_ratio"): 2.0,
        ("0.5.23", "hicache_size"): 0, ("0.5.23", "hicache_host_memory_fraction"): 0.8,
        ("0.5.23", "watchdog_timeout"): 300, ("0.5.23", "decode_log_interval"): 40,
        ("0.5.23", "ep_num_redundant_experts"): 0,
        ("0.5.7", "speculative_ngram_max_bfs_breadth"): 10,
        ("0.5.7", "speculative_ngram_max_match_window_size"): 12,
    },
}  # fmt: skip


@pytest.mark.parametrize("engine", DEFAULTS)
def test_defaults_of_flags(engine: str):
    flags = load_flags(engine)
    for (version, name), wanted in DEFAULTS[engine].items():
        assert default_of(flags[name], version, Machine(80 * GIB, "h100", "server", V1)) == wanted


def test_latent_attention_has_blocks_of_64():
    machine = Machine(80 * GIB, "h100", "server", {**V1, "attention": "mla"})
    assert default_of(VLLM["block_size"], "0.33.0", machine) == 64


FROM_ONE = {
    "vllm": "kv_cache_memory_bytes num_gpu_blocks_override max_model_len max_num_batched_tokens "
    "max_num_seqs block_size mamba_block_size max_cudagraph_capture_size tensor_parallel_size "
    "pipeline_parallel_size data_parallel_size decode_context_parallel_size "
    "prefill_context_parallel_size nnodes max_loras max_lora_rank",
    "sglang": "chunked_prefill_size max_prefill_tokens max_running_requests max_total_tokens "
    "context_length cuda_graph_max_bs cuda_graph_max_bs_decode cuda_graph_max_bs_prefill page_size "
    "tp_size pp_size dp_size ep_size dcp_size max_mamba_cache_size speculative_num_draft_tokens "
    "speculative_num_steps speculative_eagle_topk speculative_ngram_max_bfs_breadth "
    "speculative_ngram_max_match_window_size speculative_dflash_block_size "
    "speculative_dspark_block_size",
}
FROM_ZERO = {
    "vllm": "swap_space cpu_offload_gb kv_offloading_size optimization_level "
    "mm_processor_cache_gb mm_ipc_gpu_memory_gb",
    "sglang": "hybrid_kvcache_ratio cpu_offload_gb hicache_size",
}
SHARES = {
    "vllm": "gpu_memory_utilization",
    "sglang": "mem_fraction_static hicache_host_memory_fraction",
}
ABOVE_ZERO = {
    "vllm": "",
    "sglang": "swa_full_tokens_ratio mamba_full_memory_ratio hicache_ratio",
}


def takes(engine: str, name: str, value: float) -> bool:
    try:
        check_value(load_flags(engine)[name], value)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_bounds_of_flags(engine: str):
    for name in FROM_ONE[engine].split():
        assert (takes(engine, name, 1), takes(engine, name, 0)) == (True, False), name
    for name in FROM_ZERO[engine].split():
        assert (takes(engine, name, 0), takes(engine, name, -1)) == (True, False), name
    for name in (SHARES[engine] + " " + ABOVE_ZERO[engine]).split():
        assert (takes(engine, name, 0.5), takes(engine, name, 0)) == (True, False), name
    for name in SHARES[engine].split():
        assert (takes(engine, name, 1), takes(engine, name, 1.5)) == (True, False), name


def test_words_for_automatic_and_off():
    assert takes("vllm", "max_model_len", -1)
    assert takes("sglang", "chunked_prefill_size", -1)
    assert not takes("sglang", "hybrid_kvcache_ratio", 1.5)


def test_engines_in_their_order():
    assert engine_names() == ("vllm", "sglang")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_releases_are_texts(engine: str):
    for flag in load_flags(engine).values():
        bounds = [flag.since, flag.removed, *(row["versions"] for row in flag.defaults)]
        assert all(bound is None or isinstance(bound, str) for bound in bounds), flag.name


def test_prometheus_gauges_that_say_gb_hold_gib():
    engines = load_yaml(knowledge_file("formulas", "metrics.yaml"))["engines"]
    readings = [row for engine in engines for row in engine["readings"].values()]
    factors = [row["factor"] for row in readings if "factor" in row]
    assert factors == [GIB] * 4


def test_figures_of_the_engine_in_its_index():
    index = load_yaml(knowledge_file("formulas", "vllm", "index.yaml"))
    assert [row["factor"] for row in index["default_factors"]] == [2]  # "throughput" doubles
    longest = {row["longest"] for row in index["batch_rules"] if "longest" in row}
    assert longest == {32 * 1024}  # V0 cuts prefills of longer models
    assert {row["least"] for row in index["batch_rules"] if "least" in row} == {5120}  # media


def test_shared_experts_stay_whole_where_both_divisions_are_on():
    rule = load_yaml(knowledge_file("formulas", "vllm", "index.yaml"))["expert_ranks"]
    above = [row["above"] for row in rule["shared_whole"] if "above" in row]
    assert above == [{"tensor_parallel_size": 1, "data_parallel_size": 1}]


def test_cautions_begin_at_two_ranks_and_at_no_chunk():
    rows = load_yaml(knowledge_file("formulas", "sglang", "index.yaml"))["cautions"]
    assert [row["above"] for row in rows if "above" in row] == [{"dcp_size": 1}]
    assert [row["below"] for row in rows if "below" in row] == [{"chunked_prefill_size": 1}]


# gigabits of the line, lanes times gigabits, or bytes of a data sheet, in GB/s
LINKS = {
    "hbm3": 3350, "nvlink-c2c": 450, "pcie6x16": 16 * 8, "pcie5x16": 16 * 4, "pcie4x16": 16 * 2,
    "nvme-gen5": 14, "100gbe": 100 / 8, "10gbe": 10 / 8,
}  # fmt: skip


def test_links_are_as_quick_as_their_lines():
    rows = load_yaml(knowledge_file("formulas", "transfer", "links.yaml"))["links"]
    assert {row["name"]: row["bandwidth"] for row in rows} == {
        name: rate * 10**9 for name, rate in LINKS.items()
    }


@pytest.mark.parametrize(
    ("version", "times"), [("0.5.4", 2), ("0.5.18", 2), ("0.5.20", 2), ("0.5.23", 1)]
)
def test_how_often_a_request_counts_its_blocks(version: str, times: int):
    rules = load_yaml(knowledge_file("formulas", "transfer", "replay_rules.yaml"))["engines"]
    fitting = [r for r in rules["sglang"]["releases"] if holds(version, r["versions"])]
    assert [rule["inserts_per_request"] for rule in fitting] == [times]


# chunked_prefill_size, cuda_graph_max_bs and mem_fraction_static of a card SGLang cannot tell
UNKNOWN_CARD = {
    "0.4.1": (8192, 160, 0.88), "0.4.7.post1": (8192, 160, 0.88), "0.4.8": (4096, 160, 0.88),
    "0.5.12": (4096, 160, 0.88), "0.5.18": (4096, 160, 0.88), "0.5.20": (4096, 160, 0.95),
    "0.5.23": (4096, 160, 0.95),
}  # fmt: skip


@pytest.mark.parametrize("version", UNKNOWN_CARD)
def test_a_step_on_a_card_the_engine_cannot_tell(version: str):
    rows = load_yaml(knowledge_file("formulas", "profile_policies.yaml"))["defaults"]["sglang"]
    found = [row for row in rows["unknown_card"] if holds(version, row["versions"])]
    assert [(row["tokens"], row["requests"], row["fraction"]) for row in found] == [
        UNKNOWN_CARD[version]
    ]
