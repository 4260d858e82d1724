"""Low-bit checkpoint formats: bytes of a weight from `quantization_config`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget.model.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.model.parts import Weight

_EVERY_MATRIX = frozenset({"attention", "indexer", "mlp", "experts", "linear_attention", "mamba"})


@dataclass(frozen=True, slots=True)
class Quantisation:
    """`bits` per number plus `scale_bytes` for every `group` numbers of a row (or block).

    block: rows and columns that share one scale. parts: kinds of weights that are quantised.
    exact: False where the config does not say which modules stay in full precision.
    """

    method: str
    bits: int
    scale_bytes: float
    group: int | None
    block: tuple[int, int] | None
    parts: frozenset[str]
    exact: bool

    def reaches(self, weight: Weight) -> bool:
        return weight.quantised and weight.part in self.parts

    def bytes_of(self, weight: Weight) -> int:
        """Bytes of all copies of `weight`, scales included."""
        packed = weight.numel * self.bits // 8
        if self.block:
            down, across = self.block
            scales = -(-weight.rows // down) * -(-weight.cols // across)
        elif self.group:
            scales = weight.rows * -(-weight.cols // self.group)
        else:
            scales = weight.rows
        return packed + int(scales * self.scale_bytes) * weight.copies


def read_quantisation(raw: Mapping[str, Any]) -> Quantisation | None:
    """The format of a `quantization_config`, or None when it does not say how wide a weight is.

    Sources: the layouts of profile.md-style checkpoints: fp8 blocks with float32 scales, MXFP4
    (32 numbers a scale byte, experts only), NVFP4 (16 numbers a scale byte), AWQ and GPTQ
    (group scales in 16 bit and packed zero points).
    """
    c = Fields(raw, "quantization_config.")
    method = c.text("quant_method", "").lower()
    if method == "mxfp4":
        return Quantisation(method, 4, 1, 32, None, frozenset({"experts"}), True)
    if method in ("fp8", "fbgemm_fp8"):
        block = c.ints("weight_block_size")
        if block is not None and len(block) == 2:
            if 0 in block:
                raise c.wrong("weight_block_size", block, "the sides of a block")
            pair = (block[0], block[1])
            return Quantisation(method, 8, 4, None, pair, _EVERY_MATRIX, True)
        return Quantisation(method, 8, 0, None, None, _EVERY_MATRIX, False)
    algorithm = c.text("quant_algo", "").upper()
    if method == "modelopt" and algorithm == "NVFP4":
        return Quantisation("nvfp4", 4, 1, 16, None, _EVERY_MATRIX, False)
    if method == "modelopt" and algorithm == "FP8":
        return Quantisation("fp8", 8, 0, None, None, _EVERY_MATRIX, False)
    if method in ("awq", "gptq", "awq_marlin", "gptq_marlin"):
        bits = c.int("bits", "w_bit", default=4)
        group = _group(c, "group_size", "q_group_size", default=128)
        return Quantisation(method, bits, 2 + bits / 8, group, None, _EVERY_MATRIX, False)
    if method == "compressed-tensors":
        return _compressed(c)
    return None


def _group(c: Fields, *names: str, default: int | None = None) -> int | None:
    """Numbers that share a scale; -1 and 0 mean the whole row (None)."""
    stated = c.get(*names)
    return None if stated in (-1, 0) else c.int(*names, default=default or 0) or None


def _compressed(c: Fields) -> Quantisation | None:
    """One group of compressed-tensors; several groups with different widths are not guessed."""
    found = set()
    groups = c.sub("config_groups")
    for name in groups.raw if groups else ():
        group = groups.sub(name) if groups else None
        weights = group.sub("weights") if group else None
        if weights and weights.get("num_bits"):
            size = _group(weights, "group_size")
            found.add((weights.int("num_bits"), size, weights.text("strategy", "")))
    if len(found) != 1:
        return None
    bits, size, strategy = found.pop()
    return Quantisation(
        "compressed-tensors", bits, 2 if strategy != "tensor" else 0,
        size, None, _EVERY_MATRIX, False,
    )  # fmt: skip
