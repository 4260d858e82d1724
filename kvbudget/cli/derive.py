"""`kvbudget derive`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbudget.cli import complete
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
    kvbudget derive ./Llama-3-8B --engine vllm --gpu h100-80gb
    kvbudget derive ./Llama-3-8B --gpu h100-80gb -- vllm serve MODEL --max-model-len 8192 -tp 2
    kvbudget derive ./Llama-3-8B --engine both --gpu h200 --format markdown
    kvbudget derive ./Llama-3-8B --engine vllm --set kv_cache_memory=54.4GiB --gpu-memory 79.6GiB
    kvbudget derive ./Llama-3-8B --from-log serve.log --gpu-memory-utilization 0.95
    """,
    {0: "it fits", 1: "it does not fit", 2: "bad usage", 4: "a needed fact is unknown"},
    "Engine flags are spelled as the engine spells them, before or after `--`.",
)

CONTEXT = {"ignore_unknown_options": True, "allow_extra_args": True}

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="vllm, sglang or both.",
        autocompletion=complete.engines,
    ),
]
VersionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-version",
        metavar="V",
        help="Release: V beside one --engine, else ENGINE@V (repeatable).",
        autocompletion=complete.releases,
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="The engine's environment (repeatable)."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FACT=VALUE", help="A fact you know, kv_cache_memory=54.4GiB (repeatable)."
    ),
]
AssumeOption = Annotated[
    list[str] | None,
    typer.Option("--assume", metavar="FIELD=VALUE", help="A field config.json lacks (repeatable)."),
]
ArgsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL [ENGINE FLAGS]",
        show_default=False,
        help="Folder with a config.json, a path to one, or (extra hf) a hub id; then flags of the "
        "engine as it spells them.",
    ),
]


def derive(
    ctx: typer.Context,
    args: ArgsArgument = None,
    engine: EngineOption = None,
    engine_version: VersionOption = None,
    gpu: GpuOption = None,
    gpu_memory: GpuMemoryOption = None,
    env: EnvOption = None,
    set_: SetOption = None,
    assume: AssumeOption = None,
    from_log: Annotated[
        Path | None,
        typer.Option("--from-log", metavar="FILE", help="Take terms from a start-up log."),
    ] = None,
    from_profile: Annotated[
        Path | None,
        typer.Option("--from-profile", metavar="FILE", help="Take terms from a profile."),
    ] = None,
    all_steps: Annotated[
        bool,
        typer.Option("--all-steps", help="Text: every step, not only the chain to the answers."),
    ] = False,
    knowledge: KnowledgeOption = None,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Compute the KV pool an engine will have, step by step.

    The engine's own arithmetic: each step with its numbers, its result and where it is written.
    """
    from kvbudget.derive.build import Inputs, build
    from kvbudget.derive.document import document
    from kvbudget.knowledge.where import overlaid
    from kvbudget.render.json_v1 import dumps
    from kvbudget.render.output import emit

    inputs = Inputs(
        tokens=unmarked([*(args or ()), *ctx.args]), engine=engine,
        versions=tuple(engine_version or ()),
        gpu=gpu, gpu_memory=gpu_memory, env=tuple(env or ()), stated=tuple(set_ or ()),
        assume=tuple(assume or ()), log=from_log, profile=from_profile,
    )  # fmt: skip
    with overlaid(knowledge):
        results = build(inputs)
    if len(results) == 1:
        payload = document(results[0])
    else:
        from kvbudget.diff.document import both

        payload = both(results)
    if format is Format.json:
        text = dumps(payload)
    else:
        from kvbudget.render.derive import render_derive

        text = render_derive(
            results,
            payload,
            markdown=format is Format.markdown,
            output=output,
            every_step=all_steps,
        )
    emit(text, output)
    raise typer.Exit(0 if all(result.fits for result in results) else 1)


def register(app: typer.Typer) -> None:
    app.command("derive", cls=EngineFlagsCommand, epilog=EPILOG, context_settings=CONTEXT)(derive)
