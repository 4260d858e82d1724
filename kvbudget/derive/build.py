"""From the words of a command line to derivations, one per engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvbudget.derive.assemble import Derived, derive, need_capacity
from kvbudget.derive.catalogue import Gpu, find_gpu
from kvbudget.derive.command_line import CommandLine, parse_command, spellings
from kvbudget.derive.flags import load_flags
from kvbudget.derive.request import Evidence, Request, parse_stated
from kvbudget.errors import InputError, near
from kvbudget.facts import FACTS
from kvbudget.formula.registry import engine_names, load_engine
from kvbudget.formula.versions import version_key
from kvbudget.units import MIB, parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kvbudget.model.config import Model


@dataclass(frozen=True)
class Inputs:
    """Options of derive and plan as typed."""

    tokens: tuple[str, ...] = ()
    engine: str | None = None
    versions: tuple[str, ...] = ()
    gpu: str | None = None
    gpu_memory: str | None = None
    env: tuple[str, ...] = ()
    stated: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()
    log: Path | None = None
    profile: Path | None = None


def build(inputs: Inputs) -> list[Derived]:
    """One derivation, or two for `--engine both`. Raises InputError and MissingFact."""
    return [derive(request) for request in requests(inputs)]


def requests(inputs: Inputs) -> list[Request]:
    """The requests behind the typed options, one per engine."""
    from kvbudget.derive.sources import evidence_for, log_evidence, profile_evidence

    logged: dict[str, Evidence] = {}
    speaker = spoken_version = None
    notes: list[str] = []
    if inputs.log is not None:
        speaker, spoken_version, logged, notes = log_evidence(inputs.log)
    profiled = {} if inputs.profile is None else profile_evidence(inputs.profile)
    engines = _engines(inputs, speaker)
    versions = _versions(inputs.versions, engines)
    if speaker in engines and speaker not in versions and spoken_version:
        versions[speaker] = spoken_version
    lines = _commands(inputs.tokens, engines)
    model = _model(lines, inputs.assume)
    gpu = find_gpu(inputs.gpu) if inputs.gpu else None
    memory = parse_size(inputs.gpu_memory, "--gpu-memory") if inputs.gpu_memory else None
    if memory is not None and memory < MIB:
        bare = str(inputs.gpu_memory).strip().isdecimal()
        raise InputError(
            f"--gpu-memory {inputs.gpu_memory}: no card has so few bytes",
            f"with its unit: --gpu-memory {inputs.gpu_memory if bare and memory else 80}GiB",
        )
    env = _pairs(inputs.env, "--env")
    units = {n: _units(n, versions.get(n), {**lines[n].env, **env}) for n in engines}
    stated = parse_stated(
        inputs.stated, {k: v for found in units.values() for k, v in found.items()}
    )
    out = []
    for name in engines:
        line = lines[name]
        request = Request(
            name, versions.get(name), model, gpu, memory, {**line.env, **env}, line.flags,
            {k: v for k, v in stated.items() if k in units[name]},
            {**profiled, **evidence_for(name, speaker, logged)},
            (*notes, *_log_notes(inputs, name, speaker, versions), *_unknown_notes(lines, name)),
        )  # fmt: skip
        need_capacity(request)
        out.append(request)
    return out


def _units(name: str, version: str | None, env: Mapping[str, str]) -> dict[str, str | None]:
    """Every fact the engine's arithmetic or its flags know, with its unit (None: a text)."""
    engine = load_engine(name)
    release = version or engine.latest
    found: dict[str, str | None] = {"sampler": None}
    for flag in load_flags(name).values():
        spec = FACTS.get(flag.fact)
        number = flag.kind in ("int", "float", "size", "bool")
        found[flag.fact] = ((spec.unit if spec else None) or "n") if number else None
    for program in engine.programs(release, engine.selectors(release, env)):
        found |= {n: g.unit for n, g in program.inputs.items() if not g.columns}
        found |= {step.name: step.unit for step in program.steps if step.over is None}
    return found


def _engines(inputs: Inputs, found: str | None) -> list[str]:
    known = engine_names()
    wanted = inputs.engine
    if wanted is None:
        wanted = (found if found in known else None) or _named_in(inputs) or known[0]
    if wanted == "both":
        return list(known)
    if wanted not in known:
        raise InputError(f"unknown engine {wanted!r}", near(wanted, [*known, "both"]))
    return [wanted]


def _named_in(inputs: Inputs) -> str | None:
    """The engine a version or a pasted command names."""
    for name in engine_names():
        if any(v.startswith(f"{name}@") for v in inputs.versions):
            return name
        for launcher in load_engine(name).raw.get("launch") or ():
            words, size = list(inputs.tokens), len(launcher)
            if any(words[i : i + size] == launcher for i in range(len(words))):
                return name
    return None


def _versions(typed: Sequence[str], engines: Sequence[str]) -> dict[str, str]:
    out = {}
    for text in typed:
        name, sep, version = text.rpartition("@")
        if not sep:
            if len(engines) > 1:
                raise InputError(
                    f"--engine-version {text} of which engine?", f"{engines[0]}@{text}"
                )
            name = engines[0]
        if name not in engine_names():
            raise InputError(f"unknown engine {name!r}", f"one of: {', '.join(engine_names())}")
        if name not in engines:
            raise InputError(
                f"--engine-version {text}, but {name} is not derived here", f"--engine {name}"
            )
        version_key(version)
        out[name] = version
    return out


def _commands(tokens: Sequence[str], engines: Sequence[str]) -> dict[str, CommandLine]:
    return {name: parse_command(name, tokens) for name in engines}


def _log_notes(
    inputs: Inputs, name: str, speaker: str | None, versions: Mapping[str, str]
) -> list[str]:
    """What a log of another engine lends; and where its own does not say its release, the guess."""
    if inputs.log is not None and speaker not in (None, name):
        return [f"{inputs.log.name} is a log of {speaker}: {name} takes no more from it than the "
                "card, the weights and how they are split"]  # fmt: skip
    if inputs.log is None or name in versions:
        return []
    newest = load_engine(name).latest
    return [f"{inputs.log.name} names no release of {name}: {newest} is assumed, the newest read "
            "(--engine-version V)"]  # fmt: skip


def _unknown_notes(lines: Mapping[str, CommandLine], name: str) -> list[str]:
    others = [line for engine, line in lines.items() if engine != name]
    words = [w for w in lines[name].unknown if all(w in other.unknown for other in others)]
    if not words:
        return []
    return [f"not known to move memory, left out: {' '.join(_hinted(w, name) for w in words)}"]


def _hinted(word: str, name: str) -> str:
    flag = word.partition("=")[0]
    if not flag.startswith("-"):
        return word
    slip = near(flag, spellings(name), "") if flag.startswith("--") else ""
    hint = _spelled_here(flag, name) or slip
    return f"{word} ({hint})" if hint else word


def _spelled_here(word: str, name: str) -> str | None:
    """The hint for a flag of another engine that has a counterpart in this one."""
    own = load_engine(name).raw
    for other in engine_names():
        theirs = load_engine(other).raw
        known = {flag: n for n, found in load_flags(other).items() for flag in found.cli}
        if other == name or word not in known:
            continue
        for table in ("roles", "plan"):
            there, here = theirs.get(table) or {}, own.get(table) or {}
            part = next((part for part in there if there[part] == known[word]), None)
            if part is not None and here.get(part) in load_flags(name):
                return f"{name} spells it {load_flags(name)[here[part]].cli[0]}"
    return None


def _model(lines: Mapping[str, CommandLine], assume: Sequence[str]) -> Model | None:
    from kvbudget.model.config import load_model

    source = next((line.model for line in lines.values() if line.model), None)
    if source is None:
        return None
    return load_model(source, assume=assumed_fields(assume))


def assumed_fields(assume: Sequence[str]) -> dict[str, Any]:
    """`--assume FIELD=VALUE` as fields of a config. Raises InputError for anything else."""
    return {name: _number(text) for name, text in _pairs(assume, "--assume").items()}


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _pairs(items: Sequence[str], option: str) -> dict[str, str]:
    out = {}
    for item in items:
        name, sep, value = item.partition("=")
        if not sep or not name:
            raise InputError(f"{option} takes NAME=VALUE, not {item!r}", f"{option} NAME=VALUE")
        out[name] = value
    return out


def with_flags(request: Request, **flags: int | float | str | bool) -> Request:
    """The same request with these engine flags set."""
    return replace(request, flags={**request.flags, **flags})


__all__ = ["Gpu", "Inputs", "assumed_fields", "build", "requests", "with_flags"]
