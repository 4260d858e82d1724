"""SGLang's arithmetic: every worked example of every file, and the tables users quote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvbudget.formula.check import check_file
from kvbudget.formula.evaluate import Facts, Run, evaluate
from kvbudget.formula.interval import Interval
from kvbudget.formula.registry import load_engine
from kvbudget.units import GIB

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = load_engine("sglang")


def run(version: str, inputs: dict[str, Any]) -> Run:
    numbers = {k: Interval.exact(v) for k, v in inputs.items() if isinstance(v, int | float)}
    texts = {k: v for k, v in inputs.items() if isinstance(v, str)}
    tables = {k: v for k, v in inputs.items() if isinstance(v, list)}
    texts = {**ENGINE.selectors(version, {}), **texts}
    return evaluate(ENGINE.programs(version, texts), Facts(numbers, texts, tables))


FILES = sorted(f for f in ENGINE.folders[0].glob("*.yaml") if f.stem not in ("flags", "index"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_example_of_every_file_comes_out(file: Path) -> None:
    assert check_file(file) == []


@pytest.mark.parametrize("version", ["0.2.13", "0.4.3", *ENGINE.checked, "0.6.0"])
def test_every_release_has_arithmetic(version: str) -> None:
    parts = [p.part for p in ENGINE.programs(version, ENGINE.selectors(version, {}))]
    assert parts == ["fraction", "pool", "host"]


FRACTIONS = {
    "0.4.1": {24564: 0.88, 81559: 0.88},
    "0.4.6.post5": {81559: 0.88, 97871: 0.88, 143771: 0.8718, 183359: 0.8995},
    "0.5.2": {24564: 0.879, 46068: 0.778, 81559: 0.874, 143771: 0.911, 183359: 0.821},
    "0.5.4": {24564: 0.848, 46068: 0.851, 81559: 0.835, 143771: 0.907},
    "0.5.9": {24564: 0.847, 81920: 0.836, 97871: 0.863, 183359: 0.857},
    "0.5.12": {24564: 0.833, 46068: 0.843, 81559: 0.830, 143771: 0.903},
    "0.5.18": {81559: 0.830, 183359: 0.854},
    "0.5.23": {24564: 0.704, 81559: 0.830, 97871: 0.858},
}


@pytest.mark.parametrize("version", FRACTIONS)
def test_default_fraction_of_a_text_model_on_one_card(version: str) -> None:
    for card, fraction in FRACTIONS[version].items():
        found = run(version, {"smi_memory_mib": card, "attention": "full"})
        assert found.numbers["mem_fraction_static"].best == pytest.approx(fraction, abs=5e-5)


def test_the_reserve_of_an_h100_is_512_and_12288_and_128_and_graphs() -> None:
    found = run("0.5.23", {"smi_memory_mib": 81559, "attention": "full"}).numbers
    terms = [512, found["activation_mib"].best, found["ranks_mib"].best]
    terms += [found["decode_graph_mib"].best, found["prefill_graph_mib"].best]
    assert terms == [512, 12288.0, 128.0, 512, 464]
    assert found["reserved_mib"].best == 13904


@pytest.mark.parametrize(("largest", "sizes"), [(2048, 42), (4096, 50), (8192, 58), (16384, 74)])
def test_prefill_sizes_captured(largest: int, sizes: int) -> None:
    inputs = {"smi_memory_mib": 81559, "attention": "full", "chunked_prefill_size": largest}
    assert run("0.5.18", inputs).numbers["prefill_graphs"].best == sizes


def test_dp_attention_is_the_largest_term() -> None:
    inputs = {"smi_memory_mib": 143771, "attention": "mla", "tp_size": 8, "dp_size": 8,
              "enable_dp_attention": 1}  # fmt: skip
    found = run("0.5.23", inputs).numbers
    assert found["dp_attention_mib"].best == 18432
    assert found["reserved_mib"].best == 34816
    assert found["mem_fraction_static"].best == 0.758


LLAMA = [{"kind": "full", "layers": 32, "layer_token_bytes": 4096, "layer_state_bytes": 0}]
LATENT = [{"kind": "mla", "layers": 61, "layer_token_bytes": 1152, "layer_state_bytes": 0}]


def pool(
    version: str, before: float, after: float, layers: list[dict[str, Any]], **more: Any
) -> Run:
    return run(version, {
        "avail_memory_before_weights": int(before * GIB), "state_layers": "none",
        "avail_memory_after_weights": int(after * GIB), "layer_groups": layers,
        "max_model_len": 8192, "cache_layers": layers[0]["layers"], **more,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("version", "fraction", "tokens"),
    [("0.4.1", 0.88, 445_267), ("0.5.2", 0.874, 441_394), ("0.5.7", 0.835, 416_219),
     ("0.5.12", 0.830, 412_991), ("0.5.23", 0.830, 412_991)],
)  # fmt: skip
def test_llama_on_one_h100_over_the_releases(version: str, fraction: float, tokens: int) -> None:
    found = pool(version, 78.80, 63.81, LLAMA, mem_fraction_static=fraction)
    assert found.numbers["kv_cache_tokens"].best == tokens


def test_a_latent_cache_is_whole_on_every_rank() -> None:
    found = pool("0.5.23", 138.0, 58.1, LATENT, mem_fraction_static=0.886, tp_size=8)
    assert found.numbers["kv_cache_tokens"].best == 647_374
    old = pool("0.5.4", 138.0, 58.1, LATENT, mem_fraction_static=0.897, tp_size=8)
    assert old.numbers["kv_cache_tokens"].best == 670_569


def test_a_cap_never_raises_the_pool_and_pages_are_whole() -> None:
    capped = pool("0.5.15", 78.8, 63.81, LLAMA, mem_fraction_static=0.83,
                  max_total_tokens=100_000, page_size=64).numbers  # fmt: skip
    assert capped["kv_cache_tokens"].best == 99_968
    free = pool("0.5.15", 78.8, 63.81, LLAMA, mem_fraction_static=0.83, max_total_tokens=10**9)
    assert free.numbers["kv_cache_tokens"].best == 412_991


@pytest.mark.parametrize(
    ("version", "more", "tokens"),
    [("0.5.4", {}, 825_982), ("0.5.9", {}, 825_983), ("0.5.4", {"hicache_size": 40}, 305_175),
     ("0.5.9", {"hicache_size": 40}, 305_176)],
)  # fmt: skip
def test_host_pool_of_a_rank(version: str, more: dict[str, Any], tokens: int) -> None:
    inputs = {"host_tier": 1, "kv_cache_tokens": 412_991,
              "reserved_bytes_per_token": 131_072, "host_available_memory": 512 * GIB, **more}  # fmt: skip
    host = next(
        p for p in ENGINE.programs(version, ENGINE.selectors(version, {})) if p.part == "host"
    )
    numbers = {k: Interval.exact(v) for k, v in inputs.items()}
    assert evaluate([host], Facts(numbers, {}, {})).numbers["host_cache_tokens"].best == tokens


def test_automatic_host_sizing_shrinks_to_the_machine() -> None:
    small = {"host_tier": 1, "kv_cache_tokens": 412_991,
             "reserved_bytes_per_token": 131_072, "host_available_memory": 64 * GIB}  # fmt: skip
    host = next(p for p in ENGINE.programs("0.5.23", {}) if p.part == "host")

    def sized(**more: int) -> Run:
        numbers = {k: Interval.exact(v) for k, v in {**small, **more}.items()}
        return evaluate([host], Facts(numbers, {}, {}))

    assert sized().numbers["hicache_ratio"].best < 2.0
    assert sized().numbers["host_check"].best == 1
    assert sized(hicache_ratio_set=1).numbers["host_check"].best == 0
