"""The documentation agrees with the program."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("kvbudget_docs", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date():
    for path, text in generator().pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make docs`"


def test_every_exit_code_is_documented():
    from kvbudget import errors

    text = (DOCS / "exit-codes.md").read_text(encoding="utf-8")
    for name in dir(errors):
        if name.startswith("EXIT_"):
            assert re.search(rf"^\| {getattr(errors, name)} \|", text, re.MULTILINE), name


MARKDOWN = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} -> {target}"


def test_every_fact_has_a_meaning_of_its_own():
    from kvbudget.facts import FACTS

    meanings = [spec.doc for spec in FACTS.values()]
    assert len(set(meanings)) == len(meanings)


def test_every_command_has_its_page():
    from kvbudget.cli.lazy import MODULES

    pages = {path.stem for path in (DOCS / "commands").glob("*.md")}
    assert pages == set(MODULES)


def test_pages_name_no_option_that_does_not_exist():
    from typer.main import get_command

    from kvbudget.cli.app import app

    group = get_command(app)
    for page in sorted((DOCS / "commands").glob("*.md")):
        known = options_of(group, page.stem)
        text = page.read_text(encoding="utf-8")
        named = set()
        for line in re.findall(rf"kvbudget {page.stem}[^`\n]*", text):
            named |= set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line.split(" -- ")[0]))
        unknown = {name for name in named - known if not engine_flag(name)}
        assert not unknown, f"{page.name}: {unknown}"


def options_of(group, name):
    context = group.make_context("kvbudget", [], resilient_parsing=True)
    command = group.get_command(context, name)
    commands = [command]
    if hasattr(command, "list_commands"):
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        commands += [command.get_command(inner, child) for child in command.list_commands(inner)]
    params = [param for each in commands for param in each.params]
    return {option for param in params for option in (*param.opts, *param.secondary_opts)}


def engine_flag(name):
    from kvbudget.derive.command_line import spellings
    from kvbudget.formula.registry import engine_names

    return any(name in spellings(engine) for engine in engine_names())


@pytest.mark.parametrize("name", ["README.md", "SKILL.md", "CONTRIBUTING.md", "docs/tutorial.md"])
def test_every_command_that_a_page_names_exists(name):
    from typer.main import get_command

    from kvbudget.cli.app import app
    from kvbudget.cli.lazy import MODULES

    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"(?:`|\$ |\| )kvbudget ([a-z][a-z-]+)([^`|\n]*)", text, re.MULTILINE)
    assert named
    group = get_command(app)
    for command, rest in named:
        assert command in MODULES, command
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", rest.split(" -- ")[0]))
        unknown = options - options_of(group, command) - {"--help"}
        assert not {option for option in unknown if not engine_flag(option)}, (command, unknown)
