"""Bytes -> blocks -> tokens -> concurrent requests, as far as a log's figures allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.budget import Amount, Provenance, Term
from kvbudget.derivation import Derivation, Source, Step
from kvbudget.logs.engines import blocks_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.facts import Fact
    from kvbudget.logs.collect import LogReading


def derive_blocks(
    reading: LogReading, bytes_per_block: int | None, block_size: int
) -> Iterator[tuple[str | None, Derivation]]:
    """One derivation per printed KV figure; block counts need `bytes_per_block` (bytes).

    blocks = floor(KV bytes / bytes per block), tokens = blocks x block size, requests = tokens /
    max_model_len; the interval of the printed figure goes through every step.
    """
    length = next((f for f in reading.facts if f.name == "max_model_len"), None)
    source = blocks_source(reading.engine, reading.engine_version)
    for fact in reading.facts:
        if fact.name != "kv_cache_memory" or fact.low is None or fact.high is None:
            continue
        steps = list(_steps(fact, bytes_per_block, block_size, length, source))
        if steps:
            amount = Amount(fact.value, fact.low, fact.high, "B")  # type: ignore[arg-type]
            given = Term(fact.name, amount, Provenance("log", f"line {fact.line}", fact.line))
            yield (
                fact.rank,
                Derivation(
                    "", reading.engine or "", reading.engine_version, (given,), tuple(steps)
                ),
            )


def _steps(
    fact: Fact,
    bytes_per_block: int | None,
    block_size: int,
    length: Fact | None,
    source: Source | None,
) -> Iterator[Step]:
    if not bytes_per_block or not isinstance(fact.value, int) or fact.value <= 0:
        return
    low, high = int(fact.low or 0), int(fact.high or 0)
    blocks = Amount(
        fact.value // bytes_per_block, low // bytes_per_block, high // bytes_per_block, "blk"
    )
    yield Step(
        "num_gpu_blocks", "N", "blocks of the pool", "kv_cache_memory // bytes_per_block",
        f"{fact.value:,} // {bytes_per_block:,}", blocks, source,
    )  # fmt: skip
    tokens = Amount(
        blocks.value * block_size, blocks.low * block_size, blocks.high * block_size, "tok"
    )
    yield Step(
        "kv_cache_tokens", "tokens", "tokens of the pool", "num_gpu_blocks * block_size",
        f"{blocks.value:,} * {block_size}", tokens, source,
    )  # fmt: skip
    if length is not None and isinstance(length.value, int) and length.value > 0:
        each = length.value
        yield Step(
            "max_concurrency", "x", "requests of max_model_len", "kv_cache_tokens / max_model_len",
            f"{tokens.value:,} / {each:,}",
            Amount(tokens.value / each, tokens.low / each, tokens.high / each, "x"), source,
        )  # fmt: skip
