"""Options, the trace reader and the printer that the `residency` commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvbudget.cli import complete
from kvbudget.cli.options import Format

EXITS = {0: "computed", 2: "bad usage, an unreadable or malformed trace, or a missing extra"}

Trace = Annotated[
    str, typer.Argument(metavar="TRACE", help="JSONL trace, plain, .gz or .zst; - reads stdin.")
]
L1 = Annotated[
    str, typer.Option("--l1", metavar="SIZE", help="Device pool: 3000blk, 445632tok, 54.4GiB, inf.")
]
L2 = Annotated[
    str | None, typer.Option("--l2", metavar="SIZE", help="Host pool of one rank, as --l1.")
]
BlockTokens = Annotated[
    int,
    typer.Option("--block-tokens", metavar="N", min=1, help="Tokens per block of the trace."),
]
BytesPerToken = Annotated[
    int | None,
    typer.Option(
        "--bytes-per-token", metavar="N", min=1, help="KV bytes of one token on one rank."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="MODEL", help="Folder, config.json or hub id: gives the bytes per token."
    ),
]
Tp = Annotated[
    int, typer.Option("-tp", "--tensor-parallel-size", metavar="N", min=1, help="Ranks per layer.")
]
KvDtype = Annotated[
    str, typer.Option("--kv-cache-dtype", metavar="DTYPE", help="Data type of the KV cache.")
]
Sort = Annotated[bool, typer.Option("--sort", help="Sort requests by time instead of refusing.")]
LocalIds = Annotated[
    bool, typer.Option("--local-ids", help="Ids are unique below their parent only.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Parse anew; keep no columns on disk.")]

PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME",
        autocompletion=complete.policies,
        help="lru, write_through, write_through_selective, write_back, exclusive, vllm_eager "
        "or vllm_lazy.",
    ),
]
BackupInvariant = Annotated[
    str | None,
    typer.Option(
        "--backup-invariant",
        metavar="repair|refuse",
        help="A gap in the copied prefix is filled, or the copy refused.",
    ),
]
Inserts = Annotated[
    int | None,
    typer.Option(
        "--inserts-per-request",
        metavar="1|2",
        min=1,
        max=2,
        help="A request enters the tree once, or after its prompt too.",
    ),
]
LazyLoadOrder = Annotated[
    str,
    typer.Option(
        "--lazy-load-order",
        metavar="tail_first|head_first",
        help="Which end of a hit becomes the oldest.",
    ),
]
LazyReinsert = Annotated[
    bool, typer.Option("--lazy-reinsert", help="Copied blocks re-enter at the MRU end.")
]
LazyStepBlocks = Annotated[
    int,
    typer.Option("--lazy-step-blocks", metavar="N", min=1, help="Blocks allocated per step."),
]
LazyTargetFree = Annotated[
    int,
    typer.Option(
        "--lazy-target-free", metavar="N", min=0, help="Queue entries looked at per copy."
    ),
]
PrefillRate = Annotated[
    float | None,
    typer.Option(
        "--prefill-rate", metavar="TOK/S", help="Prefill rate of one rank, tokens per second."
    ),
]


def per_token(bytes_per_token: int | None, model: str | None, tp: int, kv: str) -> int | None:
    """KV bytes of one token on one rank: given, or from a model's layers."""
    if bytes_per_token is not None or model is None:
        return bytes_per_token
    from kvbudget.model.config import load_model

    return load_model(model).bytes_per_token(tp, kv_dtype=kv)


def check_number(option: str, value: float | None, *, zero: bool = False) -> None:
    """Raises InputError for negative and infinite numbers, for nan, and for 0 unless `zero`."""
    from kvbudget.errors import InputError

    if value is not None and not (0 < value < 2**63 or (zero and value == 0)):
        raise InputError(f"{option} {value:g} is no rate or price", "give a number above 0")


def read_trace(path: str, block_tokens: int, sort: bool, local_ids: bool, no_cache: bool) -> Any:  # noqa: ANN401
    """The checked trace, with a progress bar on a terminal."""
    from kvbudget.render.residency_progress import bar
    from kvbudget.residency.load import load

    with bar() as tell:
        return load(
            path,
            block_tokens=block_tokens,
            sort=sort,
            local_ids=local_ids,
            cache=not no_cache,
            progress=tell,
        )


def put(document: dict[str, Any], format_: Format, output: Path | None) -> None:
    """One residency document in the format asked for."""
    from kvbudget.render.output import emit

    if format_ is Format.json:
        from kvbudget.render import json_v1

        many = len(document.get("points") or document.get("cells") or ()) > 50
        emit(json_v1.dumps(document, indent=None if many else 1), output)
        return
    from kvbudget.render import residency

    if format_ is Format.markdown:
        emit(residency.markdown(document), output)
    else:
        emit(residency.text(document, output), output)
