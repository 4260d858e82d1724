"""`kvbudget residency report`: the planner's page as text, Markdown or HTML."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kvbudget.cli import complete
from kvbudget.cli import residency_options as shared
from kvbudget.cli.options import GpuOption, OutputOption, ReleaseOption
from kvbudget.cli.page import epilog


class ReportFormat(StrEnum):
    text = "text"
    json = "json"
    markdown = "markdown"
    html = "html"


EPILOG = epilog(
    """
    kvbudget residency report trace.jsonl --model ./Llama-3-8B --gpu h200 --prefill-rate 22000
    kvbudget residency report trace.jsonl --l1 3000blk --l2 6000blk --format html -o report.html
    """,
    shared.EXITS,
)


def report(
    trace: shared.Trace,
    l1: Annotated[
        str | None,
        typer.Option("--l1", metavar="SIZE", help="Device pool; else estimated."),
    ] = None,
    l2: Annotated[
        str | None,
        typer.Option("--l2", metavar="SIZE", help="Host pool of one rank; else 2 x L1."),
    ] = None,
    l3: Annotated[
        str | None, typer.Option("--l3", metavar="SIZE", help="Storage tier: 20000blk or inf.")
    ] = None,
    policy: shared.PolicyName = "write_through",
    gpu: GpuOption = None,
    model: shared.ModelOption = None,
    prefill_rate: shared.PrefillRate = None,
    link: Annotated[
        list[str] | None,
        typer.Option(
            "--link",
            metavar="NAME[=RATE[@LATENCY]]",
            help="As in links (repeatable).",
            autocompletion=complete.links,
        ),
    ] = None,
    host_cost: Annotated[
        float | None,
        typer.Option("--host-cost", metavar="MONEY", help="Host memory, per GiB and month."),
    ] = None,
    gpu_cost: Annotated[
        float | None, typer.Option("--gpu-cost", metavar="MONEY", help="One GPU, per hour.")
    ] = None,
    engine_version: ReleaseOption = None,
    prefetch_threshold: Annotated[
        int,
        typer.Option(
            "--prefetch-threshold", metavar="N", min=0, help="Tokens; shorter is not fetched."
        ),
    ] = 256,
    running_tokens: Annotated[
        int,
        typer.Option(
            "--running-tokens", metavar="N", min=0, help="Taken off L1 for running requests."
        ),
    ] = 0,
    block_tokens: shared.BlockTokens = 512,
    bytes_per_token: shared.BytesPerToken = None,
    tp: shared.Tp = 1,
    kv_cache_dtype: shared.KvDtype = "auto",
    sort: shared.Sort = False,
    local_ids: shared.LocalIds = False,
    no_cache: shared.NoCache = False,
    format_: Annotated[
        ReportFormat,
        typer.Option(
            "--format",
            metavar="text|json|markdown|html",
            help="html is one self-contained page with charts.",
        ),
    ] = ReportFormat.text,
    output: OutputOption = None,
) -> None:
    """Give the verdict on a host tier, with its figures.

    Hit rates, residency windows, traffic, money, and what was assumed.
    """
    from kvbudget.errors import InputError
    from kvbudget.render import json_v1, residency_report
    from kvbudget.render.output import emit
    from kvbudget.render.residency_progress import bar
    from kvbudget.residency.links import Link, parse_link, peaks
    from kvbudget.residency.replay import Policy
    from kvbudget.residency.report import Question
    from kvbudget.residency.report import report as make
    from kvbudget.residency.setups import make_setup

    bpt = shared.per_token(bytes_per_token, model, tp, kv_cache_dtype)
    assumptions = []
    if bpt is not None:
        origin = "given" if bytes_per_token is not None else "from the model's layers"
        assumptions.append(f"{bpt:,} bytes of KV per token and rank ({origin})")
    found = [parse_link(text) for text in link or ()]
    if gpu:
        from kvbudget.derive.catalogue import find_gpu

        card = find_gpu(gpu)
        if card.host_link_bytes_per_s and not found:
            found.append(
                Link(f"{card.host_link_name}", card.host_link_bytes_per_s, source="catalogue peak")
            )
        if l1 is None and model is not None:
            l1, origin = _derived_pool(policy, engine_version, model, gpu, tp, kv_cache_dtype)
            assumptions.append(origin)
    if l1 is None:
        raise InputError("how large is the device pool?", "give --l1, or --model and --gpu")
    found = found or [known for known in peaks() if known.name.startswith("pcie")]
    loaded = shared.read_trace(trace, block_tokens, sort, local_ids, no_cache)
    chosen = Policy(policy)
    if l2 is None and policy != "lru":
        first, _ = make_setup(
            loaded.block_tokens,
            bpt,
            chosen,
            l1,
            None,
            None,
            engine_version=engine_version,
            running_tokens=running_tokens,
        )
        l2 = "inf" if first.l1_blocks is None else f"{2 * first.l1_blocks}blk"
        assumptions.append(f"L2 is assumed: twice L1, {l2}")
    setup, notes = make_setup(
        loaded.block_tokens,
        bpt,
        chosen,
        l1,
        l2,
        l3,
        engine_version=engine_version,
        prefetch_threshold=prefetch_threshold,
        running_tokens=running_tokens,
    )
    shared.check_number("--prefill-rate", prefill_rate)
    shared.check_number("--host-cost", host_cost, zero=True)
    shared.check_number("--gpu-cost", gpu_cost, zero=True)
    assumptions += [note for note in notes if "invariant" in note]
    if prefill_rate is None:
        assumptions.append("no prefill rate: GPU seconds and the verdict stay unknown")
    with bar() as tell:
        document = make(
            loaded,
            Question(setup, bpt, prefill_rate, found, host_cost, gpu_cost, assumptions),
            tell,
        )
    if format_ is ReportFormat.json:
        emit(json_v1.dumps(document), output)
    elif format_ is ReportFormat.html:
        emit(residency_report.page(document), output)
    elif format_ is ReportFormat.markdown:
        emit(residency_report.markdown(document), output)
    else:
        emit(residency_report.text(document, output), output)


def _derived_pool(
    policy: str, engine_version: str | None, model: str, gpu: str, tp: int, kv: str
) -> tuple[str, str]:
    """The pool `kvbudget derive` gives for this model and card, and a line that says so."""
    from kvbudget.derive.build import Inputs, build
    from kvbudget.errors import InputError
    from kvbudget.residency.versions import engine_of

    words = [model, "--tensor-parallel-size", str(tp)]
    words += [] if kv == "auto" else ["--kv-cache-dtype", kv]
    (found,) = build(
        Inputs(
            tokens=tuple(words),
            engine=None if engine_version else engine_of(policy),
            versions=(engine_version,) if engine_version else (),
            gpu=gpu,
        )
    )
    pool = found.amount("kv_cache_tokens")
    if pool is None or pool.value <= 0:
        raise InputError(
            f"{found.engine.name} {found.version} leaves no pool on {gpu}", "give --l1, or -tp"
        )
    return f"{int(pool.value)}tok", (
        f"L1 is derived: {found.engine.name} {found.version} with its own defaults leaves "
        f"{int(pool.value):,} tokens ({int(pool.low):,} to {int(pool.high):,}); "
        "--l1 takes another pool"
    )
