"""Laws of the log reader: any bytes are read; prefixes, colours and line ends change no fact."""

from __future__ import annotations

import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbudget.knowledge.patterns import load_patterns
from kvbudget.logs.collect import read_log

PATTERNS = load_patterns()
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _facts(data: bytes) -> set[tuple[str, str | None, object]]:
    return {(f.name, f.rank, f.value) for f in read_log(io.BytesIO(data), PATTERNS).facts}


def _log(weights: int, kv: int, tokens: int, length: int) -> list[str]:
    stamp = "INFO 03-04 05:06:07"
    return [
        f"{stamp} [gpu_model_runner.py:10] Model loading took {weights / 100:.2f} GiB memory and 3.1 s",
        f"{stamp} [gpu_worker.py:20] Available KV cache memory: {kv / 100:.2f} GiB",
        f"{stamp} [kv_cache_utils.py:30] GPU KV cache size: {tokens:,} tokens",
        f"{stamp} [kv_cache_utils.py:40] Maximum concurrency for {length:,} tokens per request: 3.25x",
    ]


logs = st.builds(
    _log,
    st.integers(100, 20_000),
    st.integers(100, 20_000),
    st.integers(1_000, 9_999_999),
    st.integers(1_000, 999_999),
)


@SLOW
@given(st.binary(max_size=3000))
def test_any_bytes_are_read(data: bytes):
    read_log(io.BytesIO(data), PATTERNS)


@SLOW
@given(
    st.lists(
        st.sampled_from(
            ["Available KV cache memory: ", "9" * 50, " GiB", "\r", "\n", "\x00", "{", "["]
        )
    )
)
def test_any_mix_of_known_words_is_read(words: list[str]):
    read_log(io.BytesIO("".join(words).encode()), PATTERNS)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line + "\r",
        lambda line: f"\x1b[32m{line}\x1b[0m",
        lambda line: f"^[[0;36m{line}^[[0;0m",
        lambda line: f"#033[2m{line}#033[0m",
        lambda line: f"vllm-1  | {line}",
        lambda line: f"> {line}",
        lambda line: f"2026-01-02T03:04:05.678901234Z stdout F {line}",
        lambda line: f"(EngineCore_DP0 pid=77) {line}",
    ],
)
@SLOW
@given(lines=logs)
def test_what_stands_around_a_line_changes_no_fact(change, lines: list[str]):
    plain = _facts("\n".join(lines).encode() + b"\n")
    assert len(plain) >= 5
    assert _facts("\n".join(map(change, lines)).encode() + b"\n") == plain


@SLOW
@given(lines=logs, order=st.permutations(range(12)))
def test_the_order_of_ranks_changes_no_fact(lines: list[str], order: list[int]):
    ranked = [f"(Worker_TP{rank} pid={rank}) {line}" for rank in range(3) for line in lines]
    first = _facts("\n".join(ranked).encode() + b"\n")
    assert _facts("\n".join(ranked[i] for i in order).encode() + b"\n") == first
