"""Weight bytes from a checkpoint's own files: safetensors headers and index, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.jsonfile import parse_object, read_object

if TYPE_CHECKING:
    from pathlib import Path

HEADER_LIMIT = 100_000_000
"""The format's own limit on a header, in bytes."""

_WIDTH_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16,
    "I16": 16, "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8,
    "F4": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a header: name, dtype as written, shape, bytes in the file.

    file: the file's name; offset: where the bytes begin in it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    file: str = ""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`total_bytes` of all tensors. `tensors` is empty where only the index was there to read."""

    total_bytes: int
    tensors: tuple[Tensor, ...]
    source: str


def read_header(path: Path) -> list[Tensor]:
    """The tensors of one .safetensors file: 8-byte little-endian length, then JSON.

    Each size (data_offsets) is checked against shape x dtype. Raises InputError for a file that
    is cut short, is no safetensors file, or contradicts itself.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= HEADER_LIMIT:
                raise InputError(f"{path.name} is not a safetensors file", "check the download")
            raw = file.read(length)
    except OSError as exc:
        raise InputError(f"cannot read {path.name}: {exc.strerror}") from exc
    try:
        header = parse_object(raw, path.name)
        entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
        return [_tensor(path.name, 8 + length, name, entry) for name, entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise InputError(
            f"{path.name} has a broken safetensors header", "check the download"
        ) from exc


def _tensor(file: str, start: int, name: str, entry: dict[str, Any]) -> Tensor:
    begin, end = entry["data_offsets"]
    shape = tuple(int(size) for size in entry["shape"])
    bits = _WIDTH_BITS.get(entry["dtype"])
    if bits is not None and prod(shape) * bits != (end - begin) * 8:
        raise InputError(
            f"{file}: {name} spans {end - begin} bytes, its shape says {prod(shape) * bits // 8}",
            "the file is damaged: download it again",
        )
    return Tensor(name, entry["dtype"], shape, end - begin, file, start + int(begin))


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint in `folder`: its headers when the files are there, else the index's total.

    None when neither is there. Raises InputError when the index names files that are missing
    while others are present (a partial download would be counted as a small model).
    """
    index_path = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("*.safetensors"))
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    if index_path.is_file():
        try:
            index = read_object(index_path, "check the download")
            wanted = sorted({str(name) for name in index["weight_map"].values()})
        except (KeyError, AttributeError) as exc:
            raise InputError(f"{index_path.name} is not a safetensors index") from exc
        if not files:
            total = (index.get("metadata") or {}).get("total_size")
            return None if total is None else Checkpoint(int(total), (), index_path.name)
        missing = [name for name in wanted if not (folder / name).is_file()]
        if missing:
            raise InputError(
                f"{len(missing)} of {len(wanted)} checkpoint files are missing ({missing[0]} ...)",
                "finish the download, or keep only config.json and the index",
            )
        files = [folder / name for name in wanted]
    if not files:
        return None
    tensors = tuple(tensor for file in files for tensor in read_header(file))
    return Checkpoint(sum(t.bytes for t in tensors), tensors, f"{len(files)} safetensors headers")
