"""Pool sizes as people write them (tokens, blocks, bytes, inf) -> tokens or blocks."""

from __future__ import annotations

from fractions import Fraction

from kvbudget.errors import InputError
from kvbudget.units import parse_count, parse_size


def tokens_of(text: str, block_tokens: int | None, bytes_per_token: int | None) -> Fraction:
    """`445632tok`, `870blk`, `54.4GiB` or a bare count of tokens -> tokens.

    Raises InputError where blocks come without a block size or bytes without bytes per token.
    """
    plain = text.strip()
    if plain.endswith("tok") or plain.replace(",", "").replace("_", "").isdigit():
        return Fraction(parse_count(plain, "tok"))
    if plain.endswith("blk"):
        if block_tokens is None:
            raise InputError(f"{text}: how many tokens is a block?", "give --block-tokens")
        return Fraction(parse_count(plain, "blk") * block_tokens)
    try:
        size = parse_size(plain)
    except InputError as exc:
        raise InputError(str(exc), "write 445632tok, 870blk or 54.4GiB") from exc
    if size < 0:
        raise InputError(f"a negative size: {text}", "give a size of 0 or more")
    if not bytes_per_token:
        raise InputError(f"{text}: how many bytes is a token?", "give --bytes-per-token or --model")
    return Fraction(size, bytes_per_token)


def blocks_of(text: str, block_tokens: int, bytes_per_token: int | None) -> int | None:
    """A pool in whole blocks (rounded down); a bare number counts blocks, `inf` is None."""
    plain = text.strip()
    if plain.lower() == "inf":
        return None
    if plain.replace(",", "").replace("_", "").isdigit():
        return parse_count(plain, "blk")
    return int(tokens_of(plain, block_tokens, bytes_per_token) // block_tokens)
