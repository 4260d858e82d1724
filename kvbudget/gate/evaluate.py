"""Invocations -> findings: host facts and models joined, rules run, suppressions applied."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget.gate import rules_dead, rules_fraction, rules_gpu, rules_host, suppress
from kvbudget.gate.find import Problem, find
from kvbudget.gate.finding import LEVELS, Bench, Finding
from kvbudget.gate.pool import Pools
from kvbudget.gate.tree import collect, matches

if TYPE_CHECKING:
    from kvbudget.gate.invocation import Invocation
    from kvbudget.gate.policy import Policy
    from kvbudget.gate.suppress import Suppressed


@dataclass
class Request:
    """What the command line asks for."""

    paths: list[str] = field(default_factory=lambda: ["."])
    root: Path = field(default_factory=Path.cwd)
    fail_on: str = "error"
    select: set[str] = field(default_factory=set)
    ignore: set[str] = field(default_factory=set)
    baseline: Path | None = None
    strict: bool = False
    require_invocations: bool = False
    use_env: bool = False
    include: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    gpu: str | None = None
    node_ram: int | None = None
    model_configs: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass
class Report:
    """The result of one run."""

    invocations: list[Invocation] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    suppressed: list[Suppressed] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stale: list[dict[str, Any]] = field(default_factory=list)
    lines: dict[tuple[str, int], str] = field(default_factory=dict)
    exit_code: int = 0
    fail_on: str = "error"

    @property
    def summary(self) -> dict[str, int]:
        """Counts for the last line and the JSON."""
        levels = {
            f"{level}s": sum(f.level == level for f in self.findings) for level in reversed(LEVELS)
        }
        in_baseline = sum(item.reason == "baseline" for item in self.suppressed)
        return {
            **levels,
            "invocations": len(self.invocations),
            "files": len({inv.file for inv in self.invocations}),
            "suppressed": len(self.suppressed) - in_baseline,
            "baseline": in_baseline,
            "skipped_rules": len(self.skipped),
            "malformed_files": len(self.problems),
        }


def run(request: Request, policy: Policy) -> Report:
    """Read the tree and judge it."""
    tree = collect(
        request.paths,
        [*policy.include, *request.include],
        [*policy.exclude, *request.exclude],
        request.root,
    )
    outside = dict(os.environ) if request.use_env else {}
    result = find(tree, outside)
    report = Report(result.invocations, problems=result.problems, notes=result.notes)
    bench = Bench(policy.parameters, policy.tested_max_prompt_tokens, request.strict)
    pools = _pools(policy, request)
    for inv in result.invocations:
        _host_facts(inv, policy, request)
        rules_gpu.reading(bench, inv)
        rules_gpu.gpu(bench, inv)
        rules_dead.dead(bench, inv)
        rules_host.host(bench, inv, pools)
        rules_fraction.fraction(bench, inv)
    rules_gpu.colocated(bench, result.invocations)
    off = _off(policy, request)
    findings = []
    for finding in bench.findings:
        if finding.rule in off:
            continue
        finding.level = policy.levels.get(finding.rule, finding.level)
        findings.append(finding)
    findings = _unique(findings)
    report.skipped = [item for item in bench.skipped if item["rule"] not in off]
    findings, report.suppressed = suppress.apply(
        findings, result.texts, result.invocations, policy, off
    )
    if request.baseline is not None:
        entries = suppress.read_baseline(request.baseline)
        findings, hidden, report.stale = suppress.apply_baseline(findings, entries)
        report.suppressed += hidden
    report.findings = sorted(findings, key=lambda f: (f.file, f.line, f.rule))
    report.fail_on = request.fail_on
    for finding in [*report.findings, *(item.finding for item in report.suppressed)]:
        text = result.texts.get(finding.file) or tree.read(finding.file)
        if text is not None:
            rows = text.s.split("\n")
            if 0 < finding.line <= len(rows):
                report.lines[(finding.file, finding.line)] = rows[finding.line - 1]
    report.exit_code = _exit(report, request)
    return report


def _exit(report: Report, request: Request) -> int:
    if report.problems:
        return 2
    if request.fail_on != "never":
        least = LEVELS.index(request.fail_on)
        if any(LEVELS.index(finding.level) >= least for finding in report.findings):
            return 1
    if request.require_invocations and not report.invocations:
        return 3
    return 0


def _off(policy: Policy, request: Request) -> set[str]:
    from kvbudget.gate.finding import rule_data

    off = set(policy.off) | request.ignore
    if request.select:
        off |= set(rule_data()) - request.select
    return off


def _unique(findings: list[Finding]) -> list[Finding]:
    seen: set[tuple[str, str, int, str]] = set()
    out = []
    for finding in findings:
        key = (finding.rule, finding.file, finding.line, finding.message)
        if key not in seen:
            seen.add(key)
            out.append(finding)
    return out


def _host_facts(inv: Invocation, policy: Policy, request: Request) -> None:
    for entry in policy.hosts:
        if not matches(inv.file, entry["match"]):
            continue
        inv.host.gpu_type = inv.host.gpu_type or entry.get("gpu")
        inv.host.node_ram = inv.host.node_ram or entry.get("node_ram")
        if inv.host.gpus is None and isinstance(entry.get("gpus"), int):
            inv.host.gpus = entry["gpus"]
        break
    inv.host.gpu_type = inv.host.gpu_type or request.gpu
    inv.host.node_ram = inv.host.node_ram or request.node_ram
    if inv.version is None:
        inv.assumed_version = request.versions.get(inv.engine.name) or policy.defaults.get(
            inv.engine.name
        )


def _pools(policy: Policy, request: Request) -> Pools:
    entries: dict[str, tuple[Path | None, float | None]] = {}
    for name, entry in policy.models.items():
        entry = entry if isinstance(entry, dict) else {}
        config, weights = entry.get("config"), entry.get("weights_gib")
        entries[name] = (
            policy.base / config if config else None,
            float(weights) if weights is not None else None,
        )
    for name, path in request.model_configs.items():
        entries[name] = (Path(path), entries.get(name, (None, None))[1])
    return Pools(entries)
