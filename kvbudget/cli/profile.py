"""`kvbudget profile`: measure the terms of the budget on a device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvbudget.cli import complete
from kvbudget.cli.derive import AssumeOption
from kvbudget.cli.options import Format, FormatOption, OutputOption
from kvbudget.cli.page import Page, epilog

EPILOG = epilog(
    """
    kvbudget profile --model tiny --device cpu
    kvbudget profile --model ./Llama-3-8B --device fake --gpu h100-80gb
    kvbudget profile --model ./Llama-3-8B -tp 2 --policy vllm@0.33.0 --record run.json
    kvbudget profile --replay run.json --format json
    """,
    {
        0: "measured",
        1: "out of memory in a phase, or it does not fit",
        2: "bad usage; no torch, driver, device or model",
        4: "the card was not stable while it was measured",
    },
)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("profile", cls=Page, epilog=EPILOG)
    def profile(
        model: Annotated[
            str | None,
            typer.Option(
                "--model", metavar="MODEL", help="Folder, config.json, hub id, or `tiny`."
            ),
        ] = None,
        device: Annotated[
            str,
            typer.Option(
                "--device",
                metavar="DEVICE",
                help="auto, cuda, cuda:N, cpu, or fake (no memory touched).",
            ),
        ] = "auto",
        engine: Annotated[
            str,
            typer.Option(
                "--engine",
                metavar="ENGINE",
                help="none, vllm or sglang: run the installed engine itself.",
                autocompletion=complete.engines,
            ),
        ] = "none",
        policy: Annotated[
            str | None,
            typer.Option(
                "--policy",
                metavar="ENGINE@V",
                help="Whose bookkeeping to follow.",
                autocompletion=complete.releases,
            ),
        ] = None,
        runner: Annotated[
            str,
            typer.Option(
                "--runner",
                metavar="RUNNER",
                help="Whose forward runs: own, or hf (transformers, a cross-check on cpu and fake).",
            ),
        ] = "own",
        load_format: Annotated[
            str,
            typer.Option(
                "--load-format",
                metavar="FORMAT",
                help="dummy: random weights; safetensors: the model's own files, streamed.",
            ),
        ] = "dummy",
        max_num_batched_tokens: Annotated[
            int | None,
            typer.Option(
                "--max-num-batched-tokens",
                metavar="T",
                min=1,
                help="Tokens of the forward pass; the release's own on the card when left out.",
            ),
        ] = None,
        max_num_seqs: Annotated[
            int | None,
            typer.Option(
                "--max-num-seqs",
                metavar="S",
                min=1,
                help="Rows of the sampler; the release's own on the card when left out.",
            ),
        ] = None,
        utilization: Annotated[
            float | None,
            typer.Option(
                "--gpu-memory-utilization",
                "--mem-fraction-static",
                metavar="U",
                help="The engine's fraction; the release's own when left out.",
            ),
        ] = None,
        tp: Annotated[
            int, typer.Option("-tp", "--tensor-parallel-size", metavar="N", min=1, help="Ranks.")
        ] = 1,
        pp: Annotated[
            int,
            typer.Option(
                "-pp", "--pipeline-parallel-size", metavar="N", min=1, help="Pipeline stages."
            ),
        ] = 1,
        expert_parallel: Annotated[
            bool,
            typer.Option(
                "--enable-expert-parallel", help="Spread whole experts over the -tp ranks."
            ),
        ] = False,
        dtype: Annotated[
            str,
            typer.Option("--dtype", metavar="DTYPE", help="auto, bfloat16, float16 or float32."),
        ] = "auto",
        assume: AssumeOption = None,
        graphs: Annotated[
            bool, typer.Option("--graphs/--no-graphs", help="Measure (or model) the graph pool.")
        ] = True,
        all_graphs: Annotated[
            bool,
            typer.Option("--all-graphs", help="Capture the whole ladder, not two of each mode."),
        ] = False,
        gpu: Annotated[
            str | None,
            typer.Option(
                "--gpu",
                metavar="NAME",
                help="cpu, fake: judge by this card of the catalogue.",
                autocompletion=complete.cards,
            ),
        ] = None,
        gpu_memory: Annotated[
            str | None,
            typer.Option("--gpu-memory", metavar="SIZE", help="cpu, fake: judge by SIZE."),
        ] = None,
        decode_steps: Annotated[
            int,
            typer.Option(
                "--decode-steps", metavar="N", min=0, help="cpu, fake: also measure decode steps."
            ),
        ] = 0,
        timeout: Annotated[
            float,
            typer.Option(
                "--timeout",
                metavar="SECONDS",
                min=1,
                help="How long a silent child may take.",
            ),
        ] = 1800.0,
        record: Annotated[
            Path | None, typer.Option("--record", metavar="FILE", help="Save every reading.")
        ] = None,
        replay: Annotated[
            Path | None,
            typer.Option("--replay", metavar="FILE", help="Judge saved readings again."),
        ] = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Print the plan and stop.")
        ] = False,
        output_format: FormatOption = Format.text,
        output: OutputOption = None,
    ) -> None:
        """Measure the terms of the budget on a device.

        Weights, activations, non-torch memory and graphs, each on its own, beside the pool they leave.
        """
        from kvbudget.profile.command import run_command
        from kvbudget.profile.options import Options
        from kvbudget.render.json_v1 import dumps
        from kvbudget.render.output import emit
        from kvbudget.render.profile import to_markdown, to_text

        def progress(phase: str) -> None:
            if sys.stderr.isatty():
                print(f"\r\x1b[Kphase {phase} ...", end="", file=sys.stderr, flush=True)

        result = run_command(
            Options(
                model=model, device=device, engine=engine, policy=policy, runner=runner,
                load_format=load_format, tokens=max_num_batched_tokens, requests=max_num_seqs,
                utilization=utilization, tp=tp, pp=pp, expert_parallel=expert_parallel,
                dtype=dtype, assume=tuple(assume or ()), graphs=graphs, all_graphs=all_graphs, gpu=gpu,
                gpu_memory=gpu_memory, decode_steps=decode_steps, timeout=timeout,
                record=record, replay=replay, dry_run=dry_run,
            ),
            progress,
        )  # fmt: skip
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if output_format is Format.json:
            text = dumps(result.document)
        elif dry_run:
            text = "\n".join(result.document["plan"])
        elif output_format is Format.markdown:
            text = to_markdown(result.document)
        else:
            text = to_text(result.document, output)
        emit(text, output)
        raise typer.Exit(result.code)
