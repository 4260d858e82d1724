"""The commands as functions: typed arguments in, the JSON object of the command out.

    >>> from kvbudget import api
    >>> api.derive("Llama-3-8B", gpu="h100-80gb", flags=["-tp", "2"])["result"]["num_gpu_blocks"]

Every function returns what the command of its name prints with `--format json` (the schemas lie in
`kvbudget/schemas/`) and raises `kvbudget.errors.InputError` for input it cannot use and
`MissingFact` where a number that nothing states is needed. Sizes are integers in bytes or texts
such as `79.6GiB`; counts are tokens and blocks per rank. `knowledge` are folders laid over
formulas/ and logparsers/, as `--knowledge`.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kvbudget.derive.build import Inputs
    from kvbudget.residency.trace import Trace

__all__ = [
    "Document",
    "derive",
    "diff",
    "explain_log",
    "gate",
    "oom_triage",
    "plan",
    "profile",
    "residency_curve",
    "residency_links",
    "residency_simulate",
    "residency_sweep",
    "residency_window",
    "watch",
]

Document = dict[str, Any]
"""A JSON object with its `schema`."""

Size = int | str
"""Bytes, or a text with a unit: `79.6GiB`."""


def explain_log(
    log: str | Path | BinaryIO,
    *,
    bytes_per_block: Size | None = None,
    block_size: int = 16,
    knowledge: Sequence[Path] = (),
) -> Document:
    """Terms, budgets and derivations of a start-up log (`kvbudget.explain-log/1`).

    `log` is a path (plain, .gz, .zst), `-` for stdin, or a binary stream. Without a recognised
    line `facts` is empty.
    """
    from kvbudget.knowledge.where import overlaid
    from kvbudget.logs.collect import read_log
    from kvbudget.logs.explain import explain
    from kvbudget.render.explain_log import to_json

    with overlaid(knowledge):
        reading = read_log(log)
    block = None if bytes_per_block is None else _bytes(bytes_per_block)
    return to_json(explain(reading, bytes_per_block=block, block_size=block_size))


def oom_triage(
    log: str | Path | BinaryIO,
    *,
    startup_log: str | Path | BinaryIO | None = None,
    knowledge: Sequence[Path] = (),
) -> Document:
    """Cause, phase, arithmetic and knobs of a failure (`kvbudget.oom-triage/1`).

    Raises InputError for a start-up log that is no engine's, or another engine's.
    """
    from kvbudget.errors import InputError
    from kvbudget.knowledge.patterns import load_patterns
    from kvbudget.knowledge.where import overlaid
    from kvbudget.logs.collect import read_log
    from kvbudget.triage.report import document, unfit_startup
    from kvbudget.triage.verdict import judge

    with overlaid(knowledge):
        patterns = load_patterns()
    reading = read_log(log, patterns)
    startup = None if startup_log is None else read_log(startup_log, patterns)
    unfit = startup and unfit_startup(startup, reading.engine)
    if unfit:
        raise InputError(f"the start-up log cannot be used: {unfit}", "give the same server's")
    return document(reading, judge(reading), startup)


def derive(
    model: str | Path | None = None,
    *,
    engine: str | None = None,
    engine_version: str | Sequence[str] = (),
    gpu: str | None = None,
    gpu_memory: Size | None = None,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    facts: Mapping[str, Size | float] | None = None,
    assume: Mapping[str, str | float] | None = None,
    from_log: Path | None = None,
    from_profile: Path | None = None,
    knowledge: Sequence[Path] = (),
) -> Document:
    """The pool an engine will have (`kvbudget.derive/1`); `engine="both"` holds two and the gap.

    `flags` are words of the engine's command line, `facts` what `--set` takes, `assume` fields of
    config.json.
    """
    from kvbudget.derive.build import build
    from kvbudget.derive.document import document
    from kvbudget.diff.document import both
    from kvbudget.knowledge.where import overlaid

    inputs = _inputs(
        model, engine, engine_version, gpu, gpu_memory, flags, env, facts, assume,
        from_log, from_profile,
    )  # fmt: skip
    with overlaid(knowledge):
        results = build(inputs)
    return document(results[0]) if len(results) == 1 else both(results)


def plan(
    model: str | Path,
    *,
    context: int | None = None,
    concurrency: int | None = None,
    gpus: int = 1,
    engine: str | None = None,
    engine_version: str | Sequence[str] = (),
    gpu: str | None = None,
    gpu_memory: Size | None = None,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    facts: Mapping[str, Size | float] | None = None,
    assume: Mapping[str, str | float] | None = None,
    knowledge: Sequence[Path] = (),
) -> Document:
    """Flags that serve `context` tokens at `concurrency` requests (`kvbudget.plan/1`)."""
    from kvbudget.derive.build import requests
    from kvbudget.errors import InputError
    from kvbudget.knowledge.where import overlaid
    from kvbudget.plan.document import plan_document
    from kvbudget.plan.search import Asked
    from kvbudget.plan.solve import more_cards, solve

    inputs = _inputs(model, engine, engine_version, gpu, gpu_memory, flags, env, facts, assume)
    with overlaid(knowledge):
        wanted = requests(inputs)
        if len(wanted) > 1:
            raise InputError("plan works for one engine at a time", "name the engine")
        asked = Asked(context, concurrency, gpus)
        return plan_document(asked, solve(wanted[0], asked), lambda: more_cards(wanted[0], asked))


def diff(a: Path | str, b: Path | str) -> Document:
    """What moved between two logs, profiles or JSON files (`kvbudget.diff/1`)."""
    from kvbudget.diff.document import diff_document
    from kvbudget.diff.sides import read_side

    return diff_document(read_side(Path(a)), read_side(Path(b)))


def profile(
    model: str | Path | None = None,
    *,
    device: str = "auto",
    engine: str = "none",
    policy: str | None = None,
    runner: str = "own",
    load_format: str = "dummy",
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    gpu_memory_utilization: float | None = None,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
    dtype: str = "auto",
    assume: Mapping[str, str | float] | None = None,
    graphs: bool = True,
    all_graphs: bool = False,
    gpu: str | None = None,
    gpu_memory: Size | None = None,
    decode_steps: int = 0,
    timeout_s: float = 1800.0,
    record: Path | None = None,
    replay: Path | None = None,
) -> Document:
    """The terms of the budget measured on a device, or read from a record (`kvbudget.profile/1`).

    An out-of-memory of the device is a result (`failure`), not an exception.
    """
    from kvbudget.profile.command import run_command
    from kvbudget.profile.options import Options

    options = Options(
        model=None if model is None else str(model), device=device, engine=engine, policy=policy,
        runner=runner, load_format=load_format, tokens=max_num_batched_tokens,
        requests=max_num_seqs, utilization=gpu_memory_utilization, tp=tensor_parallel_size,
        pp=pipeline_parallel_size, expert_parallel=enable_expert_parallel, dtype=dtype,
        assume=_pairs(assume), graphs=graphs, all_graphs=all_graphs, gpu=gpu,
        gpu_memory=None if gpu_memory is None else str(gpu_memory), decode_steps=decode_steps,
        timeout=timeout_s, record=record, replay=replay, dry_run=False,
    )  # fmt: skip
    return run_command(options, lambda phase: None).document


def gate(
    *paths: str,
    root: Path | None = None,
    policy: Path | None = None,
    fail_on: str | None = None,
    gpu: str | None = None,
    model_configs: Mapping[str, str] | None = None,
    engine_versions: Mapping[str, str] | None = None,
) -> Document:
    """Findings on the engine invocations below `paths` (`kvbudget.gate/1`), as seen from `root`.

    The nearest policy file counts unless `policy` names one; `gpu`, `model_configs` (model id ->
    config.json) and `engine_versions` (engine -> release) hold where the files do not tell.
    """
    from kvbudget.gate import hardware
    from kvbudget.gate import policy as policies
    from kvbudget.gate.evaluate import Request, run
    from kvbudget.render.gate import to_document

    here = root or Path.cwd()
    chosen = policies.load(policy, here) if policy is not None else policies.find(here)
    request = Request(
        paths=list(paths) or ["."],
        root=here,
        fail_on=fail_on or chosen.fail_on or "error",
        gpu=None if gpu is None else hardware.named(gpu),
        model_configs=dict(model_configs or {}),
        versions=dict(engine_versions or {}),
    )
    return to_document(run(request, chosen))


def watch(
    *,
    urls: Sequence[str] = (),
    gpus: Sequence[str] = (),
    interval: float = 2.0,
    startup_log: Path | None = None,
    replay: Path | None = None,
    min_margin: Size = "512MiB",
    eta_s: float = 1800.0,
) -> Iterator[Document]:
    """One judged reading after the other (`kvbudget.watch/1`), `interval` seconds apart.

    Without `replay` it goes on until the caller stops asking; the driver is let go then.
    """
    from kvbudget.render.watch import to_json
    from kvbudget.watch.alarms import Limits, Watcher
    from kvbudget.watch.session import Options, samples, startup_facts

    options = Options(tuple(urls), tuple(gpus), interval=interval, replay=replay)
    budget = startup_facts(startup_log)
    watcher = Watcher(Limits(min_margin=_bytes(min_margin), eta_s=eta_s))
    with ExitStack() as stack:
        for sample in samples(options, stack):
            yield to_json(watcher.feed(sample), budget)


def residency_window(
    l1: str,
    rate: float,
    *,
    l2: str | None = None,
    policy: str | None = None,
    bytes_per_token: int | None = None,
    block_tokens: int | None = None,
    trace: str | Path | None = None,
) -> Document:
    """How long a block stays in each tier at `rate` tokens/s (`kvbudget.residency-window/1`)."""
    from kvbudget.residency import documents
    from kvbudget.residency.replay import Policy

    loaded = None if trace is None else _trace(trace, block_tokens or 512)
    named = None if policy is None else Policy(policy)
    return documents.window(l1, l2, rate, named, block_tokens, bytes_per_token, loaded)


def residency_links(
    bytes_per_token: int, *, prefill_rate: float | None = None, links: Sequence[str] = ()
) -> Document:
    """Fetch or recompute, per link (`kvbudget.residency-links/1`); rates in tokens/s of a rank."""
    from kvbudget.residency import documents
    from kvbudget.residency.links import parse_link, peaks

    found = [parse_link(text) for text in links] or list(peaks())
    return documents.links(found, bytes_per_token, prefill_rate, None)


def residency_curve(
    trace: str | Path, *, at: Sequence[int] | None = None, block_tokens: int = 512
) -> Document:
    """Exact hits of one LRU tier at every capacity in blocks (`kvbudget.residency-curve/1`)."""
    from kvbudget.residency import documents

    return documents.curve(_trace(trace, block_tokens), at)


def residency_simulate(
    trace: str | Path,
    l1: str,
    *,
    l2: str | None = None,
    l3: str | None = None,
    policy: str = "lru",
    block_tokens: int = 512,
    bytes_per_token: int | None = None,
    windows: bool = False,
    **options: Any,  # noqa: ANN401 - those of residency.setups.make_setup
) -> Document:
    """A trace through one policy (`kvbudget.residency-simulate/1`).

    Sizes as on the command line (`3000blk`, `445632tok`, `54.4GiB`, `inf`); `options` are the
    keywords of `kvbudget.residency.setups.make_setup`: engine_version, backup_invariant,
    inserts_per_request, prefetch_threshold, load_order, reinsert, step_blocks, target_free.
    """
    from kvbudget.residency import documents
    from kvbudget.residency.replay import Policy
    from kvbudget.residency.setups import make_setup

    loaded = _trace(trace, block_tokens)
    setup, notes = make_setup(
        loaded.block_tokens, bytes_per_token, Policy(policy), l1, l2, l3, **options
    )
    return documents.simulate(loaded, setup, notes, windows)


def residency_sweep(
    trace: str | Path,
    l1: Sequence[str],
    *,
    l2: Sequence[str] = (),
    l3: Sequence[str] = (),
    policies: Sequence[str] = (),
    prefetch_thresholds: Sequence[int] = (256,),
    block_tokens: int = 512,
    bytes_per_token: int | None = None,
    executor: str = "local",
    **options: Any,  # noqa: ANN401 - those of residency.setups.make_setup
) -> Document:
    """Every combination of policies, sizes and thresholds (`kvbudget.residency-sweep/1`)."""
    from kvbudget.residency import documents, sweep
    from kvbudget.residency.replay import Policy
    from kvbudget.residency.setups import make_setup
    from kvbudget.residency.sizes import blocks_of

    loaded = _trace(trace, block_tokens)
    size = loaded.block_tokens
    base, notes = make_setup(
        size, bytes_per_token, Policy.write_through, l1[0], None, None, **options
    )

    def blocks(texts: Sequence[str]) -> list[int | None]:
        return [blocks_of(text, size, bytes_per_token) for text in texts]

    setups = sweep.cells(
        base, [Policy(name) for name in policies] or list(Policy), blocks(l1),
        blocks(l2) or [0], blocks(l3) or [0], prefetch_thresholds,
    )  # fmt: skip
    return documents.sweep(loaded, sweep.run(loaded, setups, executor=executor), notes)


def _trace(path: str | Path, block_tokens: int) -> Trace:
    from kvbudget.residency.load import load

    return load(str(path), block_tokens=block_tokens)


def _bytes(size: Size) -> int:
    from kvbudget.units import parse_size

    return parse_size(str(size))


def _pairs(given: Mapping[str, Any] | None) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in (given or {}).items())


def _inputs(
    model: str | Path | None,
    engine: str | None,
    versions: str | Sequence[str],
    gpu: str | None,
    gpu_memory: Size | None,
    flags: Sequence[str],
    env: Mapping[str, str] | None,
    facts: Mapping[str, Size | float] | None,
    assume: Mapping[str, str | float] | None,
    log: Path | None = None,
    profile: Path | None = None,
) -> Inputs:
    from kvbudget.derive.build import Inputs

    words = [*([] if model is None else [str(model)]), *flags]
    return Inputs(
        tokens=tuple(words),
        engine=engine,
        versions=(versions,) if isinstance(versions, str) else tuple(versions),
        gpu=gpu,
        gpu_memory=None if gpu_memory is None else str(gpu_memory),
        env=_pairs(env),
        stated=_pairs(facts),
        assume=_pairs(assume),
        log=log,
        profile=profile,
    )
