"""Which engine's bookkeeping a profile follows: facts from formulas/profile_policies.yaml."""

from __future__ import annotations

from dataclasses import dataclass

from kvbudget.errors import InputError, KnowledgeError
from kvbudget.formula.registry import load_engine
from kvbudget.formula.versions import holds
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file


@dataclass(frozen=True, slots=True)
class Policy:
    """One engine release's way to count. The fields are explained at the head of the data file.

    tokens, requests: the facts that say how large a step is where nobody states it.
    """

    engine: str
    version: str
    baseline: str
    consumed: str
    fraction: str
    reason: str
    tokens: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.engine}@{self.version}"


def load_policy(text: str) -> Policy:
    """`vllm@0.33.0`, or `vllm` (its newest release read). Raises InputError for unknown engines."""
    file = knowledge_file("formulas", "profile_policies.yaml")
    data = load_shipped(file)
    engines = data["engines"]
    engine, _, version = text.partition("@")
    if engine not in engines:
        raise InputError(
            f"no profile policy for engine {engine!r}",
            f"--policy ENGINE@VERSION, ENGINE one of: {', '.join(engines)}",
        )
    known, defaults = load_engine(engine), data["defaults"][engine]
    version = version or known.latest
    for row in engines[engine]:
        if row["versions"] == "*" or holds(version, row["versions"]):
            return Policy(
                engine, version, row["baseline"], row["consumed"], row["fraction"],
                row["reason"], tuple(defaults["tokens"]),
                tuple(defaults["requests"]), tuple(known.version_notes(version)),
            )  # fmt: skip
    raise KnowledgeError(f"no policy for {text}", file=str(file))
