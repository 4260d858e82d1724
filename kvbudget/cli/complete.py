"""What the shell offers after an option: names out of the data, read when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    """Names that begin with `incomplete` in any case; the typed part keeps its case."""
    size = len(incomplete)
    return [incomplete + n[size:] for n in names if n[:size].lower() == incomplete.lower()]


def _last_of_list(names: Iterable[str], incomplete: str) -> list[str]:
    """The same for the last part of `A,B,...`."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _starting(names, last)]


def cards(incomplete: str) -> list[str]:
    """Cards of the catalogue."""
    from kvbudget.derive.catalogue import card_names

    return _starting((name.lower() for name in card_names()), incomplete)


def engines(incomplete: str) -> list[str]:
    """Engines whose arithmetic is known."""
    from kvbudget.formula.registry import engine_names

    return _starting(engine_names(), incomplete)


def releases(incomplete: str) -> list[str]:
    """ENGINE@VERSION of every release that was read, newest first."""
    from kvbudget.formula.registry import engine_names, load_engine

    found = (f"{name}@{v}" for name in engine_names() for v in reversed(load_engine(name).checked))
    return _starting(found, incomplete)


def rules(incomplete: str) -> list[str]:
    """Rule ids of the gate."""
    from kvbudget.gate.finding import rule_data

    return _last_of_list(rule_data(), incomplete)


def causes(incomplete: str) -> list[str]:
    """Causes of a failure, and `list`."""
    from kvbudget.triage.causes import catalogue

    return _starting(["list", *catalogue().causes], incomplete)


def policies(incomplete: str) -> list[str]:
    """Write policies of a host tier."""
    from kvbudget.residency.replay import Policy

    return _last_of_list(Policy, incomplete)


def links(incomplete: str) -> list[str]:
    """Links with a known rate."""
    from kvbudget.residency.links import peaks

    return _starting((link.name for link in peaks()), incomplete)


def entries(incomplete: str) -> list[str]:
    """Ids that `knowledge show` takes."""
    from kvbudget.knowledge.listing import entry_names

    return _starting(entry_names(), incomplete)
