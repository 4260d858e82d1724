"""GitHub Actions workflows and GitLab CI jobs: shell in `run:` and `script:`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.gate.containers import DockerOptions
from kvbudget.gate.nodes import EMPTY, Malformed, merged, words_of
from kvbudget.gate.program import inherit, share
from kvbudget.gate.readers import python
from kvbudget.gate.readers.pods import image_text
from kvbudget.gate.readers.variables import Env, read_env, split_string
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.shell_words import Scope
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.draft import Draft
    from kvbudget.gate.nodes import Node
    from kvbudget.gate.program import Reader

MAX_EXTENDS = 10
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}", re.S)


def is_actions(doc: Node) -> bool:
    """A workflow (also CircleCI's, whose jobs have steps too) or a composite action."""
    return doc.get("runs", "steps").is_list or any(
        job.get("steps").is_list or job.has("uses") for _, _, job in doc.get("jobs").pairs()
    )


def read_actions(context: Context, doc: Node) -> None:
    """Jobs and steps; `${{ matrix.x }}` with one value, `${{ env.X }}`, input defaults."""
    known: dict[str, str] = {}
    inputs = [doc.get("on", event, "inputs") for event in ("workflow_dispatch", "workflow_call")]
    for node in [*inputs, doc.get("inputs")]:
        for name, _, spec in node.pairs():
            if spec.has("default"):
                said = spec.get("default").s
                known[f"inputs.{name}"] = known[f"github.event.inputs.{name}"] = said
    top = _env(doc.get("env"), None, known)
    for job in [doc.get("runs"), *(job for _, _, job in doc.get("jobs").pairs())]:
        _job(context, job, top, known | _matrix(job))


def _matrix(job: Node) -> dict[str, str]:
    """Names of the matrix that have one value."""
    out: dict[str, str] = {}
    matrix = job.get("strategy", "matrix")
    includes = matrix.get("include").elements()
    for name, _, options in matrix.pairs():
        values = options.elements()
        single = len(values) == 1 and values[0].is_scalar and not includes
        if name not in ("include", "exclude") and single:
            out[f"matrix.{name}"] = values[0].s
    if len(includes) == 1 and len(matrix.names()) == 1:
        for name, _, value in includes[0].pairs():
            out[f"matrix.{name}"] = value.s
    return out


def _job(context: Context, job: Node, top: Env, known: dict[str, str]) -> None:
    job_env = _env(job.get("env"), top, known)
    container = job.get("container")
    image = image_text(container.get("image")) if container.is_map else container.text
    image = _substitute(image, known, job_env)
    options = split_string(container.get("options").text)
    for step in job.get("steps").elements():
        env = _env(step.get("env"), job_env, known)
        reader = context.reader()
        drafts = _step(context, reader, step, known, env)
        for draft in drafts:
            for name, line in env.lines.items():
                if name in draft.env and draft.env[name].value.s == env.values[name].s:
                    draft.env[name].line = line
            if image.s and draft.image is None:
                draft.image, draft.image_line = image, image.line
                draft.host.container = True
                DockerOptions([*options, Text.on("image", draft.line)], {}, None).apply(draft)
        share(drafts, f"{context.path}#{job.line}")
        context.drafts.extend(drafts)
        context.absorb(reader)


def _step(
    context: Context, reader: Reader, step: Node, known: dict[str, str], env: Env
) -> list[Draft]:
    """`run:` of a step, or the container that its `uses:` names."""
    run, uses = step.get("run"), step.get("uses").text
    if uses.s.startswith("docker://"):
        words = split_string(_substitute(step.get("with", "args").text, known, env))
        return reader.image_command(uses.cut(len("docker://")), None, words, dict(env.values))
    body = _substitute(run.get("command").text or run.text, known, env)
    shell = step.get("shell").s
    scope = inherit(env.values)
    scope.outside.update(context.outside)
    try:
        if shell.startswith("python"):
            return python.module(context, body)
        powershell = shell in ("pwsh", "powershell")
        return reader.script(body, scope, depth=1, powershell=powershell)
    except (UnclosedQuote, Malformed):
        return []


def _env(node: Node, base: Env | None, known: dict[str, str]) -> Env:
    env = read_env(node, base)
    for name, value in list(env.values.items()):
        env.values[name] = _substitute(value, known, base or Env())
    return env


def _substitute(text: Text, known: dict[str, str], env: Env) -> Text:
    def value(match: re.Match[str]) -> str:
        expr = match.group(1)
        if expr in known:
            return known[expr]
        if expr.startswith("env.") and expr[4:] in env.values:
            return env.values[expr[4:]].s
        default = re.fullmatch(r"([\w.-]+)\s*\|\|\s*(?:'([^']*)'|([\d.]+))", expr)
        if default:
            if known.get(default.group(1)):
                return known[default.group(1)]
            if not default.group(1).startswith(("matrix", "secrets")):
                return default.group(2) if default.group(2) is not None else default.group(3)
        literal = re.fullmatch(r"'([^']*)'|([\d.]+)", expr)
        if literal:
            return literal.group(1) or literal.group(2)
        return HOLE

    return text.sub(_EXPRESSION, value)


def read_gitlab(context: Context, doc: Node) -> bool:
    """Jobs with `script:`; `extends:` and `default:` as GitLab joins them."""
    found = False
    top = read_env(doc.get("variables"))
    bases = {base for _, _, job in doc.pairs() for base in _bases(job)}
    for name, _, own in doc.pairs():
        job = _extended(doc, own, 0)
        script = job.get("script")
        if not (script.is_list or script.s):
            continue
        found = True
        if name in bases and name.startswith("."):
            continue
        job = merged(doc.get("default"), job) if doc.get("default").is_map else job
        env = read_env(job.get("variables"), top)
        scope = Scope(outside=dict(context.outside))
        for name, value in env.values.items():
            scope.set(name, [value], exported=True)
        parts = [*job.get("before_script").elements(), *(script.elements() or [script])]
        body = Text.join([part.text for part in parts if part.s], "\n")
        reader = context.reader()
        try:
            drafts = reader.script(body, scope, depth=1)
        except UnclosedQuote:
            continue
        image_node = job.get("image") if job.has("image") else doc.get("image")
        image = image_node.get("name").text if image_node.is_map else image_node.text
        for draft in drafts:
            if image.s and draft.image is None:
                draft.image, draft.image_line = image, image.line
        for service in job.get("services").elements():
            drafts += reader.image_command(
                service.get("name").text,
                words_of(service.get("entrypoint")) or None,
                words_of(service.get("command")),
                {},
            )
        share(drafts, f"{context.path}#{job.line}")
        context.drafts.extend(drafts)
        context.absorb(reader)
    return found


def _bases(job: Node) -> list[str]:
    said = job.get("extends")
    return [item.s for item in said.elements()] or ([said.s] if said.s else [])


def _extended(doc: Node, job: Node, depth: int) -> Node:
    """A job over the ones it extends: maps are joined, lists replaced."""
    made = EMPTY
    for base in _bases(job) if depth < MAX_EXTENDS else []:
        made = merged(made, _extended(doc, doc.get(base), depth + 1))
    return merged(made, job)
