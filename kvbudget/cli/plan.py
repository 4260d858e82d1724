"""`kvbudget plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from kvbudget.cli.derive import (
    CONTEXT,
    ArgsArgument,
    AssumeOption,
    EngineOption,
    EnvOption,
    SetOption,
    VersionOption,
)  # fmt: skip
from kvbudget.cli.engine_flags import EngineFlagsCommand, unmarked
from kvbudget.cli.options import (
    Format,
    FormatOption,
    GpuMemoryOption,
    GpuOption,
    KnowledgeOption,
    OutputOption,
)
from kvbudget.cli.page import epilog

EPILOG = epilog(
    """
    kvbudget plan ./Llama-3-8B --gpu h100-80gb --context 8k --concurrency 48
    kvbudget plan ./Llama-3-8B --gpu h100-80gb --context 32768      # most requests of that length
    kvbudget plan ./Llama-3-8B --gpu h100-80gb --concurrency 16     # longest context for sixteen
    kvbudget plan ./Llama-3-70B --gpu h100-80gb --gpus 8 --context 8192 --concurrency 64
    kvbudget plan ./Llama-3-8B --gpu h100-80gb                      # largest safe utilisation
    """,
    {0: "an option serves it", 1: "none does", 2: "bad usage", 4: "a needed fact is unknown"},
    "Engine flags that are given stay fixed.",
)


def plan(
    ctx: typer.Context,
    args: ArgsArgument = None,
    context: Annotated[
        str | None, typer.Option("--context", metavar="L", help="Tokens of a request (32k, 8192).")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="C", min=1, help="Requests at once.")
    ] = None,
    gpus: Annotated[
        int, typer.Option("--gpus", metavar="N", min=1, help="Cards to use at most.")
    ] = 1,
    engine: EngineOption = None,
    engine_version: VersionOption = None,
    gpu: GpuOption = None,
    gpu_memory: GpuMemoryOption = None,
    env: EnvOption = None,
    set_: SetOption = None,
    assume: AssumeOption = None,
    knowledge: KnowledgeOption = None,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Find the flags that serve a context at a concurrency.

    Each option with what it buys and the margin it leaves. Without --concurrency: the most requests
    of that context; without --context: the longest context; without both: the largest safe share.
    """
    from kvbudget.derive.build import Inputs, requests
    from kvbudget.derive.command_line import token_count
    from kvbudget.errors import InputError
    from kvbudget.knowledge.where import overlaid
    from kvbudget.plan.document import plan_document
    from kvbudget.plan.search import Asked
    from kvbudget.plan.solve import more_cards, solve
    from kvbudget.render.json_v1 import dumps
    from kvbudget.render.output import emit

    inputs = Inputs(
        tokens=unmarked([*(args or ()), *ctx.args]), engine=engine,
        versions=tuple(engine_version or ()),
        gpu=gpu, gpu_memory=gpu_memory, env=tuple(env or ()), stated=tuple(set_ or ()),
        assume=tuple(assume or ()),
    )  # fmt: skip
    with overlaid(knowledge):
        wanted = requests(inputs)
        if len(wanted) > 1:
            raise InputError("plan works for one engine at a time", "--engine vllm")
        asked = Asked(None if context is None else token_count(context), concurrency, gpus)
        options = solve(wanted[0], asked)
        payload = plan_document(asked, options, lambda: more_cards(wanted[0], asked))
    if format is Format.json:
        emit(dumps(payload), output)
    else:
        from kvbudget.render.plan import render_plan

        emit(render_plan(payload, options, markdown=format is Format.markdown), output)
    raise typer.Exit(0 if any(option.verdict != "no" for option in options) else 1)


def register(app: typer.Typer) -> None:
    app.command("plan", cls=EngineFlagsCommand, epilog=EPILOG, context_settings=CONTEXT)(plan)
