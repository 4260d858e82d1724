"""A finding, and the bench on which a rule looks at one invocation or a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvbudget.gate.knowledge import load
from kvbudget.gate.source import file_of

if TYPE_CHECKING:
    from kvbudget.gate.invocation import Invocation

LEVELS = ("note", "warning", "error")


@dataclass
class Finding:
    """What a rule says about a place."""

    rule: str
    level: str
    file: str
    line: int
    message: str
    fix: str
    invocation: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    value: str = ""

    def record(self) -> dict[str, Any]:
        """The JSON object (gate.md section 6)."""
        return {
            "rule": self.rule,
            "level": self.level,
            "file": self.file,
            "line": self.line,
            "message": self.message,
            "fix": self.fix,
            "invocation": self.invocation,
            "data": self.data,
        }


@lru_cache(maxsize=1)
def rule_data() -> dict[str, dict[str, Any]]:
    """The catalogue by id (formulas/gate/rules.yaml)."""
    return {rule["id"]: rule for rule in load("gate/rules.yaml")["rules"]}


@dataclass
class Bench:
    """Parameters, host facts and the findings so far."""

    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    tested_max_prompt_tokens: int | None = None
    strict: bool = False
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    root: str = "."

    def parameter(self, rule: str, name: str) -> Any:  # noqa: ANN401 - YAML
        """A rule's parameter: the policy's, else the catalogue's."""
        own = self.parameters.get(rule, {})
        return own[name] if name in own else rule_data()[rule]["parameters"][name]

    def add(
        self, rule: str, inv: Invocation, line: int, message: str, *,
        level: str | None = None, file: str | None = None, value: object = "", fix: str | None = None,
        **data: Any,  # noqa: ANN401 - numbers for the JSON
    ) -> None:  # fmt: skip
        """Report; the fix is the catalogue's unless given."""
        entry = rule_data()[rule]
        if inv.engine.name not in entry.get("engines", [inv.engine.name]):
            return
        self.findings.append(
            Finding(
                rule, level or entry["level"], file or file_of(line) or inv.file, int(line or inv.line), message,
                fix or entry["fix"], inv.key, data, str(value),
            )
        )  # fmt: skip

    def skip(self, rule: str, inv: Invocation, needs: str) -> None:
        """A rule that could not be evaluated."""
        self.skipped.append(
            {"rule": rule, "invocation": f"{inv.file}:{inv.line} {inv.key}", "needs": needs}
        )


def place(inv: Invocation, name: str) -> dict[str, Any]:
    """Line and file of a flag."""
    setting = inv.settings.values[name]
    return {"line": setting.line, "file": setting.file}
