"""The words by which engines are started (formulas/gate/programs.yaml), found in a command line."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvbudget.gate.knowledge import engine_names, load, strong_fields
from kvbudget.gate.source import HOLE

if TYPE_CHECKING:
    from kvbudget.gate.source import Text


def data() -> Any:  # noqa: ANN401 - YAML
    """formulas/gate/programs.yaml."""
    return load("gate/programs.yaml")


@lru_cache(maxsize=512)
def is_silent(command: str) -> bool:
    """True for a command that only talks about engines."""
    entry = data()["silent"]
    return command in entry["names"] or any(
        re.fullmatch(pattern, command) for pattern in entry["patterns"]
    )


@lru_cache(maxsize=512)
def quotes_text(command: str) -> bool:
    """True for a command whose quoted strings are names of processes, never commands."""
    return any(re.fullmatch(pattern, command) for pattern in data()["silent"]["strings"])


@lru_cache(maxsize=1)
def silent_anywhere() -> frozenset[str]:
    """Commands that only look for words, whatever starts them."""
    return frozenset(data()["silent"]["anywhere"])


@lru_cache(maxsize=1)
def _modules() -> dict[str, str]:
    return {m: name for name, entry in data()["engines"].items() for m in entry["modules"]}


@lru_cache(maxsize=1)
def _scripts() -> dict[str, str]:
    return {s: name for name, entry in data()["engines"].items() for s in entry["scripts"]}


@lru_cache(maxsize=1)
def python_names() -> dict[str, str]:
    """Class of a Python API -> engine."""
    return {n: name for name, entry in data()["engines"].items() for n in entry["python"]}


@lru_cache(maxsize=1)
def python_common() -> frozenset[str]:
    """Those of the classes whose name other packages use too."""
    return frozenset(n for entry in data()["engines"].values() for n in entry["python_common"])


@lru_cache(maxsize=1)
def python_packages() -> frozenset[str]:
    """Packages such a class is imported from."""
    return frozenset(p for entry in data()["engines"].values() for p in entry["python_roots"])


def base(text: str) -> str:
    """Last part of a path."""
    return text.rsplit("/", 1)[-1]


def says_engine(text: str) -> bool:
    """True where a text names an engine (or a launcher of engines)."""
    return any(name in text for name in (*engine_names(), *data()["launchers"]))


def only_asks(words: list[Text]) -> bool:
    """True for a command line that has the options printed and starts nothing (`--help=page`)."""
    return any(word.s.split("=", 1)[0] in data()["asks"] for word in words)


def find_engine(words: list[Text]) -> tuple[str, int, list[Text]] | None:
    """Engine, index of its program token, and the words behind it."""
    commands = {entry["command"]: name for name, entry in data()["engines"].items()}
    entries = {entry.get("subcommand_module"): name for name, entry in data()["engines"].items()}
    modules = _modules()
    for index, word in enumerate(words):
        text = word.s
        following = words[index + 1].s if index + 1 < len(words) else ""
        previous = words[index - 1].s if index else ""
        served = commands.get(base(text)) or (entries.get(text) if previous == "-m" else None)
        if served is not None and following == "serve":
            return served, index, words[index + 2 :]
        module = text[2:] if text.startswith("-m") and text[2:] in modules else text
        if module in modules and (previous == "-m" or module != text):
            return modules[module], index, words[index + 1 :]
        script = next((s for s in _scripts() if text == s or text.endswith(f"/{s}")), None)
        if script is not None:
            return _scripts()[script], index, words[index + 1 :]
        if base(text) in data()["launchers"] and following == "launch":
            return _launched(words, index)
    return None


def _launched(words: list[Text], index: int) -> tuple[str, int, list[Text]] | None:
    """`xinference launch --model-engine NAME`."""
    rest = words[index + 2 :]
    for at, word in enumerate(rest):
        flag, sep, value = word.s.partition("=")
        if flag in ("--model-engine", "--model_engine", "-en"):
            name = value if sep else (rest[at + 1].s if at + 1 < len(rest) else "")
            if name.lower() in engine_names():
                return name.lower(), index, rest
    return None


def image_engine(image: Text | None, command: list[Text]) -> str | None:
    """Engine whose server is the entry point of an image, or whose flags the command holds."""
    if command and _replaces_entrypoint(command[0].s):
        return None
    flags = {
        word.s.split("=", 1)[0].split(".", 1)[0].lstrip("-").replace("-", "_")
        for word in command
        if word.s.startswith("--")
    }
    for engine in engine_names():
        if flags & set(strong_fields(engine)):
            return engine
    name = image.s.lower().split("@")[0] if image is not None else ""
    last = base(name).split(":")[0]
    for engine, entry in data()["engines"].items():
        if last.startswith(tuple(entry["images"]) or ("\0",)):
            return str(engine)
    return None


def _replaces_entrypoint(word: str) -> bool:
    if HOLE in word or ("/" in word and not word.startswith(("/bin", "/usr"))):
        return False
    return (
        re.fullmatch(r"[\w./-]+", word) is not None
        and base(word) in data()["not_an_entrypoint"]["names"]
    )
