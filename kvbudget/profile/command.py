"""What `kvbudget profile` does with its options: plan, run or replay, judge."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from kvbudget.errors import EXIT_OK, InputError
from kvbudget.jsonfile import read_object
from kvbudget.model.layers import stage_ranges
from kvbudget.profile.device import BUNDLED, bundled_model, pick_device
from kvbudget.profile.judge import Outcome, judge
from kvbudget.profile.shards import stored
from kvbudget.profile.take import take_record
from kvbudget.profile.types import Job, Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvbudget.profile.options import Options

DEFAULT_POLICY = "vllm"


def run_command(options: Options, on_phase: Callable[[str], None]) -> Outcome:
    """Raises InputError for unusable options, files, devices and models."""
    from kvbudget.model.config import load_model
    from kvbudget.profile.policy import load_policy

    if options.record is not None and not options.dry_run:
        need_writable(options.record)
    if options.engine != "none":
        from kvbudget.profile.engines.driver import run_engine

        _refuse_beside_engine(options)
        return run_engine(options, on_phase)
    if options.replay is not None:
        record = load_record(options.replay)
        job = record.job
        if options.policy:
            job = replace(job, policy=options.policy)
        if options.utilization is not None:
            job = replace(job, utilization=options.utilization)
        if options.model is not None:
            job = replace(job, model=bundled_model(options.model))
        record.job = replace(job, model=bundled_model(job.model))
    else:
        record = None
        job = make_job(options)
    model = load_model((record.job if record else job).model, assume=job.assume)
    model = model.with_dtype(job.dtype)
    policy = load_policy(job.policy)
    if record is None:
        stage_ranges(len(model.anatomy.layers), job.pp)
        if job.load != "dummy":
            stored(model)
    if options.dry_run:
        from kvbudget.profile.plan import describe

        plan = describe(job, model, policy)
        document: dict[str, Any] = {
            "schema": "kvbudget.profile/1", "dry_run": True, "plan": plan, "job": asdict(job)
        }  # fmt: skip
        return Outcome(document, EXIT_OK)
    if record is None:
        record = take_record(job, timeout=options.timeout, on_phase=on_phase)
    if options.record is not None:
        save_record(record, options.record)
    return judge(record, model, policy)


def make_job(options: Options) -> Job:
    """The job of a run. Raises InputError for a missing model or a fraction outside (0, 1]."""
    from kvbudget.derive.build import assumed_fields
    from kvbudget.model.config import load_model
    from kvbudget.profile.defaults import engine_defaults
    from kvbudget.profile.policy import load_policy
    from kvbudget.units import parse_size

    if options.model is None:
        raise InputError("no model to profile", "--model MODEL (or --model tiny, or --replay FILE)")
    device, index = pick_device(options.device)
    capacity = None
    if options.gpu or options.gpu_memory:
        if device == "cuda":
            raise InputError("--gpu and --gpu-memory are for --device cpu and fake", "drop them")
        if options.gpu_memory:
            capacity = parse_size(options.gpu_memory, "--gpu-memory")
            if capacity <= 0:
                raise InputError(f"--gpu-memory {options.gpu_memory}: no card has that", "80GiB")
        elif options.gpu:
            from kvbudget.derive.catalogue import find_gpu

            capacity = int(find_gpu(options.gpu).total.value)
    policy = load_policy(options.policy or DEFAULT_POLICY)
    stated = options.utilization
    if stated is not None and not 0 < stated <= 1:
        raise InputError(
            f"--gpu-memory-utilization {stated:g} is out of range",
            "it takes above 0 and at most 1: 0.9 for 90 %",
        )
    _refuse(options, device)
    assume = assumed_fields(options.assume)
    own = engine_defaults(
        policy, load_model(bundled_model(options.model), assume=assume), card=options.gpu,
        capacity=capacity, device=device, index=index, ranks=(options.tp, options.pp),
    )  # fmt: skip
    unset = [
        f"{name} {value:g}" for name, value, given in (
            ("--max-num-batched-tokens", own.tokens, options.tokens),
            ("--max-num-seqs", own.requests, options.requests),
            ("--gpu-memory-utilization", own.fraction, stated),
        ) if given is None
    ]  # fmt: skip
    return Job(
        model=bundled_model(options.model), device=device, policy=policy.name,
        tokens=options.tokens or own.tokens, requests=options.requests or own.requests,
        utilization=own.fraction if stated is None else stated,
        defaulted=f"not set, so as {policy.name} on {own.card}: {', '.join(unset)}" if unset else "",
        tp=options.tp, pp=options.pp, ep=options.tp if options.expert_parallel else 1,
        runner=options.runner, load=options.load_format, graphs=options.graphs, all_graphs=options.all_graphs, dtype=options.dtype,
        capacity=capacity, card=options.gpu, decode_steps=options.decode_steps,
        device_index=index, assume=assume,
    )  # fmt: skip


def _refuse(options: Options, device: str) -> None:
    """Raises InputError for values nobody knows and for combinations that nothing measures."""
    for value, known, name in (
        (options.runner, ("own", "hf"), "--runner"),
        (options.load_format, ("dummy", "safetensors"), "--load-format"),
        (options.dtype, ("auto", "bfloat16", "float16", "float32"), "--dtype"),
    ):
        if value not in known:
            raise InputError(f"{name} {value}: not known", f"one of: {', '.join(known)}")
    if options.runner == "own":
        return
    for wrong, what in (
        (device == "cuda", "on a GPU: transformers' kernels are not an engine's"),
        (options.tp > 1 or options.pp > 1, "with several ranks: transformers does not divide here"),
        (options.load_format != "dummy", "with the model's own weights"),
        (options.decode_steps > 0, "with decode steps"),
    ):
        if wrong:
            raise InputError(f"--runner hf does not go {what}", "--runner own")


def _refuse_beside_engine(options: Options) -> None:
    """Raises InputError for options that the installed engine would not hear of."""
    _refuse(options, "cuda")
    for given, what, instead in (
        (options.replay is not None, "--replay", "kvbudget explain-log FILE reads a kept log"),
        (options.device not in ("auto", "cuda"), f"--device {options.device}",
         "CUDA_VISIBLE_DEVICES chooses an engine's devices"),
        (bool(options.gpu or options.gpu_memory), "--gpu and --gpu-memory", "drop them"),
        (options.decode_steps > 0, "--decode-steps", "drop it"),
        (options.all_graphs, "--all-graphs", "drop it: the engine captures its own ladder"),
        (bool(options.assume), "--assume", "the engine reads config.json by itself"),
    ):  # fmt: skip
        if given:
            raise InputError(f"{what} does not go with --engine", instead)


def load_record(path: Path) -> Record:
    """Raises InputError for a file that is not a record of a known schema."""
    return Record.from_json(read_object(path, "give a file of kvbudget profile --record"))


def need_writable(path: Path) -> None:
    """Raises InputError before anything has run where the recording could not be kept."""
    target = path if path.exists() else path.parent
    if path.is_dir() or not os.access(target, os.W_OK):
        raise InputError(f"cannot write {path}", "give a writable --record FILE")


def save_record(record: Record, path: Path) -> None:
    """Raises InputError where the file cannot be written. The bundled model is kept by name."""
    raw = record.to_json()
    if raw["job"]["model"].startswith(str(BUNDLED)):
        raw["job"]["model"] = raw["job"]["model"].removeprefix(str(BUNDLED)).strip("/\\")
    try:
        path.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    except OSError as exc:
        raise InputError(
            f"cannot write {path}: {exc.strerror}", "give a writable --record FILE"
        ) from exc
