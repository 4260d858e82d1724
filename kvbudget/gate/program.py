"""Commands -> engine processes: wrappers, containers, quoted scripts."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.containers import DockerOptions, apptainer_run, container_run, job_image
from kvbudget.gate.draft import Draft, Pin
from kvbudget.gate.engines import (
    base,
    find_engine,
    image_engine,
    is_silent,
    only_asks,
    quotes_text,
    says_engine,
    silent_anywhere,
)
from kvbudget.gate.shell import Command, Script
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.shell_words import MAX_NESTING, Scope
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PYTHON = re.compile(r"python[\d.]*\Z")
_SHELL_CODE = re.compile(r"(?:ba|z|da|k)?sh -[A-Za-z]*c\Z")
_CODE_OPTION = re.compile(r"-[A-Za-z]*c\Z")
_REQUIREMENT = re.compile(
    r"(vllm|sglang)(?:\[[^\]]*\])?\s*(?:(==|===|>=|<=|~=|!=|>|<|@)\s*(\S+))?\Z"
)


class Reader:
    """Finds the engine processes of shell text; shared by every file shape that holds shell."""

    def __init__(
        self,
        source: Callable[[str], Text | None] | None = None,
        code: Callable[[Text, dict[str, Text]], list[Draft]] | None = None,
    ) -> None:
        """`source(path)` gives a file of the tree, `code(text, env)` the drafts of Python text."""
        self.source = source
        self.code = code
        self.pins: list[Pin] = []
        self.files: list[tuple[str, Text]] = []
        self.manifests: list[Text] = []

    def script(
        self, text: Text, scope: Scope | None = None, *, powershell: bool = False, depth: int = 0
    ) -> list[Draft]:
        """Drafts of a script. Raises UnclosedQuote at depth 0."""
        if depth > MAX_NESTING:
            return []
        try:
            commands = Script(text, scope, source=self.source, powershell=powershell).run()
        except UnclosedQuote:
            if depth:
                return []
            raise
        out: list[Draft] = []
        for command in commands:
            out.extend(self.command(command, scope, depth))
        return out

    def command(self, command: Command, scope: Scope | None, depth: int = 0) -> list[Draft]:
        """Drafts of one simple command."""
        words = command.words
        head = base(words[0].s)
        self._requirements(words)
        self._heredocs(command)
        out: list[Draft] = []
        for body, _ in command.heredocs:
            if runs_shell(words):
                out += self.script(body, None, depth=depth + 1)
        if is_silent(head):
            return out
        env = dict(command.env)
        if self.code is not None and reads_python(words):
            for body, _ in command.heredocs:
                out += self.code(body, env)
        found = self.words(words, env, scope, depth)
        return out + found

    def words(
        self, words: list[Text], env: dict[str, Text], scope: Scope | None = None, depth: int = 0
    ) -> list[Draft]:
        """Drafts of a command line given as words."""
        words = self._env_prefix(words, env)
        if not words:
            return []
        at = container_run(words)
        if at is not None:
            return self._container(words[at:], env, scope, depth)
        code = python_code(words)
        if code is not None:
            return self.code(code, env) if self.code is not None else []
        found = find_engine(words)
        if found is not None:
            engine, program, rest = found
            if only_asks(rest) or any(
                base(word.s) in silent_anywhere() for word in words[:program]
            ):
                return []
            draft = Draft(engine, words[program].line, words=[w for w in rest if w.s != "2>&1"])
            self._wrappers(words[:program], draft)
            draft.image = job_image(words[:program])
            draft.image_line = draft.image.line if draft.image is not None else 0
            for name, value in env.items():
                draft.set_env(name, value, value.line or draft.line)
            return [draft]
        out = apptainer_run(words)
        for index, word in enumerate(words):
            if base(word.s) in silent_anywhere() or quotes_text(base(words[0].s)):
                break
            if index and says_engine(word.s) and re.search(r"\s", word.s.strip()):
                typed = word.cut(0, len(word.s.removesuffix("\\n")))  # `screen -X stuff '...\n'`
                inner = inherit(env)
                if _SHELL_CODE.match(f"{base(words[0].s)} {words[index - 1].s}"):
                    inner.give(words[index + 2 :])  # `sh -c SCRIPT NAME WORDS...`
                nested = self.script(typed, inner, depth=depth + 1)
                image = job_image(words)
                for draft in nested:
                    if image is not None and draft.image is None:
                        draft.image, draft.image_line = image, image.line
                out += nested
        return out

    def _env_prefix(self, words: list[Text], env: dict[str, Text]) -> list[Text]:
        for index, word in enumerate(words):
            if word.s in ("env", "/usr/bin/env", "/bin/env"):
                at = index + 1
                while at < len(words):
                    text = words[at].s
                    if text == "-u" or text == "--unset":
                        at += 2
                    elif re.match(r"[A-Za-z_]\w*=", text):
                        name, _, _ = text.partition("=")
                        env[name] = words[at].cut(len(name) + 1)
                        at += 1
                    elif text.startswith("-"):
                        at += 1
                    else:
                        break
                return [*words[:index], *words[at:]]
            if index > 6:
                break
        for index, word in enumerate(words[:12]):
            match = re.match(r"([A-Za-z_]\w*)=", word.s)
            if match and index and base(words[0].s) in ("sudo", "nohup", "exec", "time"):
                env[match.group(1)] = word.cut(match.end())
        return words

    def _wrappers(self, before: list[Text], draft: Draft) -> None:
        for index, word in enumerate(before):
            text = word.s
            match = _REQUIREMENT.match(text)
            if index and before[index - 1].s in ("--with", "--from") and match:
                self._add_pin(match, word.line)
            name, _, value = text.partition("=")
            if name == "--env" and "=" in value:
                key, _, inner = value.partition("=")
                draft.set_env(key, Text.on(inner, word.line), word.line)
            elif name == "--env" and not value and index + 1 < len(before):
                for pair in before[index + 1].s.split(","):
                    key, sep, inner = pair.partition("=")
                    if sep:
                        draft.set_env(key, Text.on(inner, word.line), word.line)

    # ---- containers --------------------------------------------------------------------------
    def _container(
        self, words: list[Text], env: dict[str, Text], scope: Scope | None, depth: int
    ) -> list[Draft]:
        options = DockerOptions(words, env, self.source)
        if options.image is None:
            return []
        out = self.image_command(options.image, options.entrypoint, options.command, {}, depth)
        for draft in out:
            options.apply(draft)
        return out

    def image_command(
        self,
        image: Text | None,
        entrypoint: list[Text] | None,
        command: list[Text],
        env: dict[str, Text],
        depth: int = 0,
    ) -> list[Draft]:
        """The engine process of a container: what its command says, else its image's entry point."""
        words = [*(entrypoint or []), *command]
        drafts: list[Draft] = []
        if words:
            drafts = self.words(words, env, None, depth + 1)
        if not drafts and not entrypoint and not only_asks(command):
            engine = image_engine(image, command)
            if engine:
                args = command[1:] if command and command[0].s == "serve" else command
                line = (
                    image.line
                    if image is not None and image.s
                    else (command[0].line if command else 0)
                )
                drafts = [Draft(engine, line, words=args)]
                for name, value in env.items():
                    drafts[0].set_env(name, value, value.line or line)
        for draft in drafts:
            if image is not None and draft.image is None:
                draft.image = image
                draft.image_line = image.line
            draft.host.container = True
        return drafts

    # ---- side products -----------------------------------------------------------------------
    def _requirements(self, words: list[Text]) -> None:
        texts = [word.s for word in words]
        installs = "install" in texts or ("add" in texts and base(texts[0]) in ("uv", "poetry"))
        if not installs or (
            not any(
                base(text).startswith(("pip", "uv", "poetry", "conda", "mamba"))
                for text in texts[:5]
            )
            and not ("-m" in texts and "pip" in texts)
        ):
            return
        for word in words:
            match = _REQUIREMENT.match(word.s)
            if match:
                self._add_pin(match, word.line)

    def _add_pin(self, match: re.Match[str], line: int) -> None:
        version = match.group(3) if match.group(2) in ("==", "===") else None
        if version and (HOLE in version or "*" in version):
            version = None
        self.pins.append(Pin(match.group(1), version, line))

    def _heredocs(self, command: Command) -> None:
        head = base(command.words[0].s)
        targets = [word for word in command.writes if word.s != "/dev/null"]
        heads = [base(word.s) for word in command.words[:3]]
        if "tee" in heads:
            behind = command.words[heads.index("tee") + 1 :]
            targets += [word for word in behind if not word.s.startswith("-")]
        if command.piped_to.split(" ")[:1] == ["tee"] or " tee " in f" {command.piped_to} ":
            targets += [
                Text.on(word, 0) for word in command.piped_to.split() if "/" in word or "." in word
            ]
        for body, _ in command.heredocs:
            texts = [word.s for word in command.words]
            if ("kubectl" in head and "-f" in texts) or "kubectl" in command.piped_to:
                self.manifests.append(body)
                continue
            for target in targets:
                if target.s and HOLE not in PurePosixPath(target.s).name:
                    self.files.append((target.s, body))
                    break


def runs_shell(words: list[Text]) -> bool:
    """True where a here-document is a script for this command."""
    texts = [base(word.s) for word in words]
    if texts[0] in ("cat", "tee", "echo"):
        return False
    return any(text in ("bash", "sh", "zsh", "ssh", "dash") for text in texts)


def python_code(words: list[Text]) -> Text | None:
    """CODE of `python -c CODE`."""
    at = _python_at(words)
    for index in range(at + 1, len(words) - 1):
        option = words[index].s
        if _CODE_OPTION.match(option):
            return words[index + 1]
        if not option.startswith("-") or option == "-m":
            return None
    return None


def reads_python(words: list[Text]) -> bool:
    """True for `python` or `python -`: a here-document is its program."""
    at = _python_at(words)
    return at < len(words) and (words[-1].s == "-" or at == len(words) - 1)


def _python_at(words: list[Text]) -> int:
    return next((i for i, word in enumerate(words) if _PYTHON.match(base(word.s))), len(words))


def inherit(env: dict[str, Text]) -> Scope:
    """A scope in which these variables are exported."""
    scope = Scope()
    for name, value in env.items():
        scope.set(name, [value], exported=True)
    return scope


def share(drafts: Iterable[Draft], unit: str) -> None:
    """Processes of one host unit can share a card when their explicit ids meet."""
    for draft in drafts:
        draft.host.share_unit = draft.host.share_unit or unit
