"""Safetensors headers and indexes, read without torch; checkpoints of low-bit formats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.errors import InputError
from kvbudget.model.checkpoint import read_checkpoint, read_header
from kvbudget.model.config import load_model
from tests.unit import model_configs as c

if TYPE_CHECKING:
    from pathlib import Path

BITS = {"BF16": 16, "F32": 32, "F8_E4M3": 8, "U8": 8, "I32": 32}


def write(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> int:
    """A safetensors file of zeros; returns the bytes of its tensors."""
    header, offset = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = BITS[dtype] // 8
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(offset))
    return offset


KINDS = {
    "fp8 blocks": {"a.weight": ("F8_E4M3", [256, 128]), "a.weight_scale_inv": ("F32", [2, 1])},
    "gptq": {"a.qweight": ("I32", [16, 64]), "a.qzeros": ("I32", [1, 8]), "a.scales": ("BF16", [1, 64])},
    "mxfp4": {"a_blocks": ("U8", [4, 8, 2, 16]), "a_scales": ("U8", [4, 8, 2])},
    "packed": {"a.weight_packed": ("I32", [64, 16]), "a.weight_scale": ("BF16", [64, 1])},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_headers_add_up_to_the_bytes(tmp_path: Path, kind: str) -> None:
    total = write(tmp_path / "model.safetensors", KINDS[kind])
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert found.total_bytes == total
    assert {tensor.name for tensor in found.tensors} == set(KINDS[kind])


def test_a_quantised_model_takes_its_bytes_from_the_files(tmp_path: Path) -> None:
    unclear = {**c.LLAMA_8B, "quantization_config": {"quant_method": "compressed-tensors"}}
    (tmp_path / "config.json").write_text(json.dumps(unclear))
    total = write(tmp_path / "model.safetensors", KINDS["packed"])
    model = load_model(tmp_path)
    assert model.weights_bytes().value == total
    half = model.weights_bytes(2)
    assert half.low <= total / 2 * 1.02
    assert not half.is_exact


def test_an_index_alone_gives_the_total(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 123456}, "weight_map": {"a": "model-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert (found.total_bytes, found.tensors) == (123456, ())


def test_half_a_download_is_not_a_small_model(tmp_path: Path) -> None:
    index = {"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    write(tmp_path / "m-1.safetensors", KINDS["mxfp4"])
    with pytest.raises(InputError, match="missing"):
        read_checkpoint(tmp_path)


def test_a_header_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    raw = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    with pytest.raises(InputError, match="its shape says"):
        read_header(path)


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    path.write_bytes(raw)
    try:
        read_header(path)
    except InputError:
        return
