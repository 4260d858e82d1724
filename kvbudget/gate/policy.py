"""The policy file: kvbudget.yaml, or [tool.kvbudget.gate] of pyproject.toml."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.gate.finding import LEVELS, rule_data
from kvbudget.gate.nodes import Malformed, Node, documents
from kvbudget.gate.tree import decode
from kvbudget.gate.units import binary_size, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "kvbudget.yaml"
_KEYS = {
    "fail_on", "rules", "tested_max_prompt_tokens", "defaults", "models", "hosts", "paths",
    "exclude", "include",
}  # fmt: skip
_RULE_KEYS = {"level"}
_MODEL_KEYS = {"config", "weights_gib"}
_HOST_KEYS = {"match", "gpu", "node_ram", "gpus"}
_PATH_KEYS = {"match", "ignore", "reason"}
UNSUPPRESSABLE = frozenset({"GATE032"})


@dataclass
class Policy:
    """What a project allows; `file` is None where there is no policy."""

    file: str | None = None
    base: Path = field(default_factory=Path.cwd)
    fail_on: str | None = None
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    off: set[str] = field(default_factory=set)
    tested_max_prompt_tokens: int | None = None
    defaults: dict[str, str] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    hosts: list[dict[str, Any]] = field(default_factory=list)
    paths: list[dict[str, Any]] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)


class PolicyError(InputError):
    """A policy that cannot be used; carries file:line."""


def find(root: Path) -> Policy:
    """The nearest policy upwards from `root` to the repository's root."""
    for folder in (root, *root.parents):
        own, project = folder / FILE, folder / "pyproject.toml"
        has_table = project.is_file() and _table(project) is not None
        if own.is_file() and has_table:
            raise PolicyError(
                f"error: {FILE}:1: both {FILE} and [tool.kvbudget.gate] in pyproject.toml",
                "keep one of them",
            )
        if own.is_file():
            return load(own, root)
        if has_table:
            return _from_table(project, root)
        if (folder / ".git").exists():
            break
    return Policy(base=root)


def load(path: Path, root: Path) -> Policy:
    """Read a policy file. Raises PolicyError with file:line and the nearest valid name."""
    import os

    shown = os.path.relpath(path, root).replace(os.sep, "/")
    try:
        text = decode(path.read_bytes())
    except OSError as exc:
        raise PolicyError(
            f"error: {shown}: cannot read the policy: {exc.strerror}", "give --policy FILE"
        ) from exc
    try:
        docs = documents(text)
    except Malformed as exc:
        raise PolicyError(f"error: {shown}:{exc.line}: cannot read as YAML: {exc.detail}") from None
    policy = Policy(file=shown, base=path.parent)
    if docs:
        _read(policy, docs[0])
    return policy


def _table(project: Path) -> dict[str, Any] | None:
    import tomllib

    try:
        data = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = data.get("tool", {}).get("kvbudget", {}).get("gate")
    return found if isinstance(found, dict) else None


def _from_table(project: Path, root: Path) -> Policy:
    import json
    import os

    shown = os.path.relpath(project, root).replace(os.sep, "/")
    rows = project.read_text(encoding="utf-8").split("\n")
    line = next((i for i, row in enumerate(rows, 1) if row.startswith("[tool.kvbudget.gate")), 1)
    from kvbudget.gate.source import Text

    text = json.dumps({"version": 1, "gate": _table(project)})
    policy = Policy(file=shown, base=project.parent)
    _read(policy, documents(Text.on(text, line))[0])
    return policy


def _fail(
    policy: Policy, line: int, what: str, name: str = "", valid: Iterable[str] = ()
) -> PolicyError:
    near = difflib.get_close_matches(name, sorted(valid), 1, 0.4) if name else []
    hint = f"; did you mean {near[0]}?" if near else ""
    return PolicyError(
        f"error: {policy.file}:{line}: {what}{hint}", "see docs/commands/gate.md, policy file"
    )


def _check(policy: Policy, node: Node, valid: set[str], what: str) -> None:
    for key, line, _ in node.pairs():
        if key not in valid:
            raise _fail(policy, line, f"unknown {what} {key!r}", key, valid)


def _read(policy: Policy, doc: Node) -> None:
    _check(policy, doc, {"version", "gate"}, "key")
    if doc.get("version").s not in ("1", ""):
        raise _fail(
            policy, doc.key_line("version"), f"unknown policy version {doc.get('version').s!r}"
        )
    gate = doc.get("gate")
    _check(policy, gate, _KEYS, "key")
    if gate.has("fail_on"):
        policy.fail_on = gate.get("fail_on").s
        if policy.fail_on not in (*LEVELS, "never"):
            raise _fail(
                policy,
                gate.key_line("fail_on"),
                f"fail_on: {policy.fail_on!r} is not a level",
                policy.fail_on,
                [*LEVELS, "never"],
            )
    for rule, line, node in gate.get("rules").pairs():
        _rule(policy, rule, line, node)
    tokens = gate.get("tested_max_prompt_tokens").value()
    if tokens is not None and not isinstance(tokens, int):
        raise _fail(
            policy,
            gate.key_line("tested_max_prompt_tokens"),
            "tested_max_prompt_tokens is a whole number",
        )
    policy.tested_max_prompt_tokens = tokens
    for engine, line, node in gate.get("defaults").pairs():
        from kvbudget.gate.knowledge import engine_names

        if engine not in engine_names():
            raise _fail(policy, line, f"unknown engine {engine!r}", engine, engine_names())
        policy.defaults[engine] = node.s
    for name, _, node in gate.get("models").pairs():
        _check(policy, node, _MODEL_KEYS, "model key")
        policy.models[name] = node.value()
    for node in gate.get("hosts").elements():
        _check(policy, node, _HOST_KEYS, "host key")
        policy.hosts.append(_host(policy, node))
    for node in gate.get("paths").elements():
        _check(policy, node, _PATH_KEYS, "path key")
        ignore = [item.s for item in node.get("ignore").elements()]
        for rule in ignore:
            _known(policy, rule, node.key_line("ignore"))
        policy.paths.append(
            {"match": node.get("match").s, "ignore": ignore, "reason": node.get("reason").s}
        )
    policy.exclude = [item.s for item in gate.get("exclude").elements()]
    policy.include = [item.s for item in gate.get("include").elements()]


def _known(policy: Policy, rule: str, line: int) -> None:
    if rule not in rule_data():
        raise _fail(policy, line, f"unknown rule {rule!r}", rule, set(rule_data()))


def _rule(policy: Policy, rule: str, line: int, node: Node) -> None:
    _known(policy, rule, line)
    if node.is_scalar:
        if node.s in ("off", "false"):
            policy.off.add(rule)
        elif node.s in LEVELS:
            policy.levels[rule] = node.s
        else:
            raise _fail(
                policy, line, f"{rule}: write off, a level, or a map", node.s, ["off", *LEVELS]
            )
        return
    parameters = rule_data()[rule].get("parameters", {})
    valid = _RULE_KEYS | set(parameters)
    _check(policy, node, valid, f"parameter of {rule}")
    for key, at, value in node.pairs():
        if key == "level":
            if value.s == "off":
                policy.off.add(rule)
            elif value.s not in LEVELS:
                raise _fail(policy, at, f"level {value.s!r} of {rule}", value.s, list(LEVELS))
            else:
                policy.levels[rule] = value.s
            continue
        number = value.value()
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise _fail(policy, at, f"{key} of {rule} must be a number")
        policy.parameters.setdefault(rule, {})[key] = number


def _host(policy: Policy, node: Node) -> dict[str, Any]:
    from kvbudget.gate import hardware

    out: dict[str, Any] = {"match": node.get("match").s or "**"}
    if node.has("gpu"):
        found = hardware.entry(node.get("gpu").s)
        if found is None:
            raise _fail(policy, node.key_line("gpu"), f"unknown card {node.get('gpu').s!r}")
        out["gpu"] = found["name"]
    if node.has("node_ram"):
        out["node_ram"] = node_ram(node.get("node_ram").s)
        if out["node_ram"] is None:
            raise _fail(
                policy, node.key_line("node_ram"), f"not a size: {node.get('node_ram').s!r}"
            )
    if node.has("gpus"):
        out["gpus"] = node.get("gpus").value()
    return out


def node_ram(text: str) -> int | None:
    """`128GB` = 128e9, `128GiB` = 128 * 2^30."""
    from kvbudget.units import parse_size

    try:
        return parse_size(text)
    except InputError:
        return quantity(text) or binary_size(text)
