"""`kvbudget residency`: windows, links, curves, simulation, sweeps and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbudget.cli import complete, residency_report, residency_sweep
from kvbudget.cli.options import (
    Format,
    FormatOption,
    OutputOption,
    ReleaseOption,
)
from kvbudget.cli.page import CONTEXT, Page, Pages, epilog
from kvbudget.cli.residency_options import (
    EXITS,
    L1,
    L2,
    BackupInvariant,
    BlockTokens,
    BytesPerToken,
    Inserts,
    KvDtype,
    LazyLoadOrder,
    LazyReinsert,
    LazyStepBlocks,
    LazyTargetFree,
    LocalIds,
    ModelOption,
    NoCache,
    PolicyName,
    PrefillRate,
    Sort,
    Tp,
    Trace,
    check_number,
    per_token,
    put,
    read_trace,
)

EPILOG = epilog(
    """
    kvbudget residency window --l1 445632tok --l2 891264tok --rate 2000
    kvbudget residency report trace.jsonl --model ./Llama-3-8B --gpu h200 --prefill-rate 22000
    """,
    EXITS,
)
WINDOW = epilog(
    """
    kvbudget residency window --l1 445632tok --l2 891264tok --rate 2000
    kvbudget residency window --l1 54.4GiB --l2 109GiB --bytes-per-token 131072 --rate 2000
    kvbudget residency window --l1 3000blk --rate 900 --trace trace.jsonl
    """,
    EXITS,
)
LINKS = epilog(
    """
    kvbudget residency links --bytes-per-token 131072 --prefill-rate 22000
    kvbudget residency links --model ./Llama-3-8B --gpu h200 --prefill-rate 22000 --link 100gbe
    kvbudget residency links --bytes-per-token 131072 --link disk=7GB/s@90us --prefill-rate 22000
    """,
    EXITS,
)
CURVE = epilog(
    """
    kvbudget residency curve trace.jsonl --at 1000,10000
    kvbudget residency curve trace.jsonl.gz --block-tokens 16 --format json -o curve.json
    """,
    EXITS,
)
SIMULATE = epilog(
    """
    kvbudget residency simulate trace.jsonl --l1 3000blk --l2 6000blk --policy write_back
    kvbudget residency simulate trace.jsonl --l1 3000blk --l2 6000blk --l3 inf --windows
    """,
    EXITS,
)


def window(
    l1: L1,
    rate: Annotated[
        float,
        typer.Option(
            "--rate", metavar="TOK/S", help="Unique insertions into the pool, tokens per second."
        ),
    ],
    l2: L2 = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Say which of the two forms this policy follows.",
            autocompletion=complete.policies,
        ),
    ] = None,
    block_tokens: Annotated[
        int | None,
        typer.Option("--block-tokens", metavar="N", min=1, help="Tokens per block."),
    ] = None,
    bytes_per_token: BytesPerToken = None,
    model: ModelOption = None,
    tp: Tp = 1,
    kv_cache_dtype: KvDtype = "auto",
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace", metavar="TRACE", help="Also solve the working-set form on a trace."
        ),
    ] = None,
    format_: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Say how long a block stays in each tier."""
    from kvbudget.residency import mode

    mode.expect(trace)
    from kvbudget.residency import documents
    from kvbudget.residency.replay import Policy

    bpt = per_token(bytes_per_token, model, tp, kv_cache_dtype)
    chosen = Policy(policy) if policy else None
    loaded = read_trace(trace, block_tokens or 512, False, False, False) if trace else None
    put(documents.window(l1, l2, rate, chosen, block_tokens, bpt, loaded), format_, output)


def links(
    bytes_per_token: BytesPerToken = None,
    prefill_rate: PrefillRate = None,
    link: Annotated[
        list[str] | None,
        typer.Option(
            "--link",
            metavar="NAME[=RATE[@LATENCY]]",
            help="pcie5x16=64GB/s, disk=7GB/s@90us, eth=25Gbit/s; or a known name (repeatable).",
            autocompletion=complete.links,
        ),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option("--latency", metavar="TIME", help="Start-up time of links that state none."),
    ] = None,
    model: ModelOption = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help="Adds the card's own host link.",
            autocompletion=complete.cards,
        ),
    ] = None,
    tp: Tp = 1,
    kv_cache_dtype: KvDtype = "auto",
    measure_host: Annotated[
        bool, typer.Option("--measure-host", help="Measure this machine's memory and disk.")
    ] = False,
    measure_dir: Annotated[
        Path | None, typer.Option("--measure-dir", metavar="DIR", help="Where the test file goes.")
    ] = None,
    format_: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Say for each link: fetch a prefix, or compute it again."""
    from kvbudget.errors import InputError
    from kvbudget.residency import mode

    mode.expect(None)
    from kvbudget.residency import documents
    from kvbudget.residency.links import Link, parse_link, parse_seconds, peaks

    bpt = per_token(bytes_per_token, model, tp, kv_cache_dtype)
    if bpt is None:
        raise InputError("how many bytes is a token?", "give --bytes-per-token or --model")
    check_number("--prefill-rate", prefill_rate)
    found = [parse_link(text) for text in link] if link else list(peaks())
    if gpu:
        from kvbudget.derive.catalogue import find_gpu

        card = find_gpu(gpu)
        if card.host_link_bytes_per_s:
            found.insert(
                0,
                Link(
                    f"{card.name} host link",
                    card.host_link_bytes_per_s,
                    source=f"catalogue: {card.host_link_name}",
                ),
            )
    if measure_host:
        from kvbudget.residency.measure import file_links, memory_link

        found += [memory_link(), *file_links(measure_dir)]
    startup = parse_seconds(latency) if latency else None
    put(documents.links(found, bpt, prefill_rate, startup), format_, output)


def curve(
    trace: Trace,
    at: Annotated[
        str | None, typer.Option("--at", metavar="N,N,...", help="Only these capacities (blocks).")
    ] = None,
    block_tokens: BlockTokens = 512,
    sort: Sort = False,
    local_ids: LocalIds = False,
    no_cache: NoCache = False,
    format_: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Count the hits of one LRU tier at every capacity."""
    from kvbudget.residency import mode

    mode.expect(trace)
    from kvbudget.residency import documents
    from kvbudget.units import parse_count

    wanted = [parse_count(part, "blk") for part in at.split(",")] if at else None
    loaded = read_trace(trace, block_tokens, sort, local_ids, no_cache)
    put(documents.curve(loaded, wanted, sample=format_ is not Format.json), format_, output)


def simulate(
    trace: Trace,
    l1: L1,
    l2: L2 = None,
    l3: Annotated[
        str | None, typer.Option("--l3", metavar="SIZE", help="Storage tier: 20000blk or inf.")
    ] = None,
    policy: PolicyName = "lru",
    engine_version: ReleaseOption = None,
    backup_invariant: BackupInvariant = None,
    inserts_per_request: Inserts = None,
    prefetch_threshold: Annotated[
        int,
        typer.Option(
            "--prefetch-threshold", metavar="N", min=0, help="Tokens below which L3 is left alone."
        ),
    ] = 256,
    lazy_load_order: LazyLoadOrder = "tail_first",
    lazy_reinsert: LazyReinsert = False,
    lazy_step_blocks: LazyStepBlocks = 16,
    lazy_target_free: LazyTargetFree = 32,
    running_tokens: Annotated[
        int,
        typer.Option(
            "--running-tokens", metavar="N", min=0, help="Taken off L1: tokens of running requests."
        ),
    ] = 0,
    windows: Annotated[
        bool, typer.Option("--windows", help="Add residency windows and the gap histogram.")
    ] = False,
    block_tokens: BlockTokens = 512,
    bytes_per_token: BytesPerToken = None,
    model: ModelOption = None,
    tp: Tp = 1,
    kv_cache_dtype: KvDtype = "auto",
    sort: Sort = False,
    local_ids: LocalIds = False,
    no_cache: NoCache = False,
    format_: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Replay a trace through one policy, block by block."""
    from kvbudget.residency import mode

    mode.expect(trace)
    from kvbudget.residency import documents
    from kvbudget.residency.replay import Policy
    from kvbudget.residency.setups import make_setup

    bpt = per_token(bytes_per_token, model, tp, kv_cache_dtype)
    chosen = Policy(policy)
    loaded = read_trace(trace, block_tokens, sort, local_ids, no_cache)
    setup, notes = make_setup(
        loaded.block_tokens, bpt, chosen, l1, l2, l3,
        engine_version=engine_version, backup_invariant=backup_invariant,
        inserts_per_request=inserts_per_request, prefetch_threshold=prefetch_threshold,
        load_order=lazy_load_order, reinsert=lazy_reinsert, step_blocks=lazy_step_blocks,
        target_free=lazy_target_free, running_tokens=running_tokens,
    )  # fmt: skip
    put(documents.simulate(loaded, setup, notes, windows), format_, output)


def register(app: typer.Typer) -> None:
    """Add `residency` and its subcommands."""
    group = typer.Typer(
        cls=Pages,
        name="residency",
        help="Say whether a host tier for KV pays: windows, links, replay.",
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=CONTEXT,
        epilog=EPILOG,
    )
    for function, end in (
        (window, WINDOW),
        (links, LINKS),
        (curve, CURVE),
        (simulate, SIMULATE),
        (residency_sweep.sweep, residency_sweep.EPILOG),
        (residency_report.report, residency_report.EPILOG),
    ):
        group.command(function.__name__, cls=Page, epilog=end)(function)
    app.add_typer(group)
