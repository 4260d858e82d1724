"""`kvbudget residency sweep`: policies x capacities x thresholds on every core, or on Ray."""

from __future__ import annotations

from typing import Annotated

import typer

from kvbudget.cli import complete
from kvbudget.cli import residency_options as shared
from kvbudget.cli.options import Format, FormatOption, OutputOption, ReleaseOption
from kvbudget.cli.page import epilog

EPILOG = epilog(
    """
    kvbudget residency sweep trace.jsonl --l1 1000blk,3000blk --l2 6000blk,24000blk
    kvbudget residency sweep trace.jsonl --l1 3000blk --l2 6000blk --policy write_back -o sweep.txt
    """,
    shared.EXITS,
)


def sweep(
    trace: shared.Trace,
    l1: Annotated[
        list[str], typer.Option("--l1", metavar="SIZE,...", help="Device pools: 1000blk,3000blk.")
    ],
    l2: Annotated[
        list[str] | None, typer.Option("--l2", metavar="SIZE,...", help="Host pools.")
    ] = None,
    l3: Annotated[
        list[str] | None, typer.Option("--l3", metavar="SIZE,...", help="Storage tiers; 0, inf.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME,...",
            help="Policies; all of them when left out.",
            autocompletion=complete.policies,
        ),
    ] = None,
    prefetch_threshold: Annotated[
        list[str] | None,
        typer.Option("--prefetch-threshold", metavar="N,...", help="Tokens, 256 when left out."),
    ] = None,
    engine_version: ReleaseOption = None,
    backup_invariant: shared.BackupInvariant = None,
    inserts_per_request: shared.Inserts = None,
    lazy_load_order: shared.LazyLoadOrder = "tail_first",
    lazy_reinsert: shared.LazyReinsert = False,
    lazy_step_blocks: shared.LazyStepBlocks = 16,
    lazy_target_free: shared.LazyTargetFree = 32,
    executor: Annotated[
        str,
        typer.Option(
            "--executor",
            metavar="local|serial|ray",
            help="Where the cells run; the result is the same.",
        ),
    ] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(
            "-j", "--jobs", metavar="N", min=1, help="Cells at a time, all cores when left out."
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option("--ray-address", metavar="HOST:PORT", help="A running Ray cluster, or auto."),
    ] = None,
    block_tokens: shared.BlockTokens = 512,
    bytes_per_token: shared.BytesPerToken = None,
    model: shared.ModelOption = None,
    tp: shared.Tp = 1,
    kv_cache_dtype: shared.KvDtype = "auto",
    sort: shared.Sort = False,
    local_ids: shared.LocalIds = False,
    no_cache: shared.NoCache = False,
    format_: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Replay every combination of policies, capacities and thresholds."""
    from kvbudget.render.residency_progress import bar
    from kvbudget.residency import documents
    from kvbudget.residency import sweep as work
    from kvbudget.residency.replay import Policy
    from kvbudget.residency.setups import make_setup
    from kvbudget.residency.sizes import blocks_of
    from kvbudget.units import parse_count

    bpt = shared.per_token(bytes_per_token, model, tp, kv_cache_dtype)
    loaded = shared.read_trace(trace, block_tokens, sort, local_ids, no_cache)
    size = loaded.block_tokens
    base, notes = make_setup(
        size, bpt, Policy.write_through, split(l1)[0], None, None,
        engine_version=engine_version, backup_invariant=backup_invariant,
        inserts_per_request=inserts_per_request, load_order=lazy_load_order,
        reinsert=lazy_reinsert, step_blocks=lazy_step_blocks, target_free=lazy_target_free,
    )  # fmt: skip
    setups = work.cells(
        base,
        [Policy(name) for name in split(policy)] or list(Policy),
        [blocks_of(text, size, bpt) for text in split(l1)],
        [blocks_of(text, size, bpt) for text in split(l2)] or [0],
        [blocks_of(text, size, bpt) for text in split(l3)] or [0],
        [parse_count(text, "tok") for text in split(prefetch_threshold)] or [256],
    )
    with bar() as tell:
        results = work.run(
            loaded, setups, executor=executor, jobs=jobs, ray_address=ray_address, progress=tell
        )
    shared.put(documents.sweep(loaded, results, notes), format_, output)


def split(values: list[str] | None) -> list[str]:
    """`a,b` and repeated options -> one list."""
    return [part.strip() for text in values or () for part in text.split(",") if part.strip()]
