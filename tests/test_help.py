"""One voice: laws that hold for the help page of every command and subcommand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from kvbudget.cli.app import app

ROOT = Path(__file__).resolve().parent.parent

# One name, one meaning; these differ for a reason that their help states.
OWN_MEANING = {
    "--format": "each command lists its formats",
    "--output": "the gate writes several formats at once",
    "--engine-version": "V is enough beside one --engine",
    "--gpu": "watch looks at the cards of this machine",
    "--policy": "a policy file of the gate, an engine's bookkeeping, a write policy of a tier",
    "--l1": "a sweep takes lists",
    "--l2": "a sweep takes lists",
    "--l3": "a sweep takes lists",
    "--prefetch-threshold": "a sweep takes lists",
    "--explain": "a cause or a rule",
}


@cache
def pages() -> dict:
    """Command path -> (command, its context)."""
    found = {}

    def walk(command, name, parent):
        context = command.make_context(name, [], parent=parent, resilient_parsing=True)
        context.max_content_width = 100
        found[context.command_path] = (command, context)
        for child in getattr(command, "list_commands", lambda _: [])(context):
            walk(command.get_command(context, child), child, context)

    walk(get_command(app), "kvbudget", None)
    return found


PATHS = sorted(pages())
COMMANDS = [path for path in PATHS if not hasattr(pages()[path][0], "list_commands")]


def examples(path: str) -> list[str]:
    block = pages()[path][0].epilog.split("Examples:\n")[1].split("\n\n")[0]
    return [line.strip() for line in block.split("\n") if line.strip()]


def exit_codes(path: str) -> list[int]:
    block = pages()[path][0].epilog.split("Exit codes:\n")[1]
    return [int(line.split()[0]) for line in block.split("\n") if line.strip()]


def test_the_whole_tree_is_walked():
    assert len(COMMANDS) >= 18
    assert {"kvbudget residency", "kvbudget knowledge drift"} <= set(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_the_purpose_is_one_short_sentence(path):
    purpose = pages()[path][0].help.strip().split("\n\n")[0]
    assert re.fullmatch(r"[A-Z][^\n]{10,66}\.", purpose), purpose


@pytest.mark.parametrize("path", PATHS)
def test_every_parameter_says_what_it_takes_and_does(path):
    command, context = pages()[path]
    for param in command.get_params(context):
        if path == "kvbudget" and "completion" in param.name:
            continue  # typer's own
        assert param.help, param.name
        assert param.help.rstrip().endswith("."), (param.name, param.help)
        if not getattr(param, "is_flag", False):
            assert param.metavar, param.name
            assert not re.search(r"[<>\[{ ]?(str|int|float|path|Path)\b", param.metavar), param.name


def test_an_option_means_the_same_everywhere():
    spelled = defaultdict(set)
    for command, context in pages().values():
        for param in command.get_params(context):
            if param.param_type_name == "option" and not param.is_flag:
                for name in param.opts:
                    spelled[name].add(param.metavar)
    differing = {name for name, metavars in spelled.items() if len(metavars) > 1}
    assert differing <= set(OWN_MEANING), differing - set(OWN_MEANING)


@pytest.mark.parametrize("path", PATHS)
def test_two_examples_or_more_that_the_parser_takes(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = examples(path)
    assert len(lines) >= 2
    for line in lines:
        part = next(p for p in re.split(r"[|;]+", line) if "kvbudget" in p.split("<")[0])
        words = shlex.split(re.split(r" [<>] ", part)[0], comments=True)
        words = words[words.index("kvbudget") :]
        typed = next(p for p in sorted(PATHS, key=len, reverse=True) if _begins(words, p.split()))
        command, context = pages()[typed]
        parent = context.parent
        command.make_context(typed.split()[-1], words[len(typed.split()) :], parent=parent)
        assert typed.startswith(path) or "diff" in path, f"{line}: not about {path}"


def _begins(words: list[str], start: list[str]) -> bool:
    return words[: len(start)] == start


@pytest.mark.parametrize("path", PATHS)
def test_exit_codes_are_those_of_the_docs(path):
    documented = re.findall(r"^\| (\d+) \|", (ROOT / "docs/exit-codes.md").read_text(), re.M)
    codes = exit_codes(path)
    assert {0, 2} <= set(codes) <= {int(code) for code in documented}
    assert codes == sorted(codes)


@pytest.mark.parametrize("path", PATHS)
def test_the_page_fits_a_hundred_columns_in_one_layout(path):
    command, context = pages()[path]
    formatter = context.make_formatter()
    formatter.width = 100
    command.format_help(context, formatter)
    text = formatter.getvalue()
    assert max(len(line) for line in text.split("\n")) <= 100
    heads = [line for line in text.split("\n") if line.endswith(":") and line[:1].strip()]
    order = ["Arguments:", "Options:", "Commands:", "Examples:", "Exit codes:"]
    assert [head for head in order if head in heads] == heads
    assert "-h, --help" in text
    assert "..." not in re.sub(r"\w+,?\.\.\.|\]\.\.\.", "", text.split("Examples:")[0])


def program(*words: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "kvbudget", *words],
        capture_output=True, text=True, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_alone_it_says_what_to_do_first():
    done = program()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.rstrip().split("\n")
    assert len(lines) <= 15
    assert lines[3].split() == ["a", "crash", "kvbudget", "oom-triage", "crash.log"]
    named = {word for line in lines[3:-2] for word in line.split("kvbudget ")[1].split()[:1]}
    assert named == {path.split()[1] for path in PATHS if " " in path} - {"knowledge"}


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["explan-log"], "did you mean explain-log?"),
        (["residency", "windw"], "did you mean window?"),
        (["explain-log", "--formt", "json"], "did you mean --format?"),
        (["gate", "--fail-onn", "error"], "did you mean --fail-on?"),
        (["gate", "--explain", "GATE91"], "GATE"),
        (["oom-triage", "--explain", "vram.weihgts"], "did you mean vram.weights?"),
        (["explain-log", "--format", "yaml"], "'text', 'json', 'markdown'"),
        (["residency", "window", "--l1", "3blk"], "kvbudget residency window -h"),
    ],
)  # fmt: skip
def test_a_slip_is_answered_with_the_near_word(words, near):
    done = program(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    first, second, *rest = done.stderr.rstrip("\n").split("\n")
    assert first.startswith("kvbudget: ")
    assert second.startswith("  ")
    assert rest == []
    assert near in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("kvbudget derive M --gpu H100-8", "H100-80gb"),
        ("kvbudget derive M --engine vl", "vllm"),
        ("kvbudget residency simulate T --policy write_b", "write_back"),
        ("kvbudget gate --select GATE010,GATE06", "GATE010,GATE060"),
        ("kvbudget oom-triage --explain host.cg", "host.cgroup_oom"),
        ("kvbudget knowledge drift sgl", "sglang"),
    ],
)
def test_the_shell_completes_names_of_the_data(shell, typed, offered):
    words = {
        "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1),
        "_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    done = program(_KVBUDGET_COMPLETE=f"complete_{shell}", **words)
    assert offered in done.stdout
