"""Commands -> engine processes: wrappers, containers, quoted scripts."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.draft import Draft, Pin, gpu_ids
from kvbudget.gate.shell import MAX_NESTING, Command, Scope, Script
from kvbudget.gate.shell_lex import UnclosedQuote
from kvbudget.gate.source import HOLE, Text
from kvbudget.gate.units import binary_size, is_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SILENT = frozenset(
    [
        ":",
        "echo",
        "printf",
        "cat",
        "tee",
        "grep",
        "egrep",
        "fgrep",
        "rg",
        "pgrep",
        "pkill",
        "killall",
        "kill",
        "pip",
        "pip3",
        "pipx",
        "which",
        "man",
        "git",
        "curl",
        "wget",
        "sed",
        "awk",
        "apt",
        "apt-get",
        "dnf",
        "yum",
        "logger",
        "alias",
        "type",
        "command_not_found",
        "ls",
        "ps",
        "rm",
        "cp",
        "mv",
        "mkdir",
        "chown",
        "chmod",
        "print",
        "info",
        "warn",
        "log",
        "die",
        "fail",
        "usage",
        "hash",
        "huggingface-cli",
        "hf",
        "helm",
        "make",
        "cmake",
        "find",
        "head",
        "tail",
        "less",
        "test",
        "diff",
        "trap",
        "complete",
    ]
)
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "vllm.entrypoints.grpc_server": "vllm",
    "sglang.launch_server": "sglang",
    "dynamo.vllm": "vllm",
    "dynamo.sglang": "sglang",
}
_SCRIPT = re.compile(
    r"(?:.*/)?(vllm/entrypoints/(?:openai/)?api_server|sglang/(?:srt/)?launch_server)\.py\Z"
)
_PYTHON = re.compile(r"python[\d.]*\Z")
_WORDS = re.compile(r"vllm|sglang|xinference")
_DOCKER_VALUED = frozenset(
    [
        "-a",
        "--attach",
        "--add-host",
        "--annotation",
        "--blkio-weight",
        "--cap-add",
        "--cap-drop",
        "--cgroup-parent",
        "--cgroupns",
        "--cidfile",
        "--cpu-period",
        "--cpu-quota",
        "--cpu-shares",
        "-c",
        "--cpus",
        "--cpuset-cpus",
        "--cpuset-mems",
        "--device",
        "--device-cgroup-rule",
        "--dns",
        "--dns-option",
        "--dns-search",
        "--domainname",
        "--entrypoint",
        "-e",
        "--env",
        "--env-file",
        "--expose",
        "--gpus",
        "--group-add",
        "--health-cmd",
        "--health-interval",
        "--health-retries",
        "--health-timeout",
        "--health-start-period",
        "-h",
        "--hostname",
        "--ip",
        "--ip6",
        "--ipc",
        "--isolation",
        "-l",
        "--label",
        "--label-file",
        "--link",
        "--log-driver",
        "--log-opt",
        "--mac-address",
        "-m",
        "--memory",
        "--memory-reservation",
        "--memory-swap",
        "--memory-swappiness",
        "--mount",
        "--name",
        "--net",
        "--network",
        "--network-alias",
        "--oom-score-adj",
        "--pid",
        "--pids-limit",
        "--platform",
        "-p",
        "--publish",
        "--pull",
        "--restart",
        "--runtime",
        "--security-opt",
        "--shm-size",
        "--stop-signal",
        "--stop-timeout",
        "--storage-opt",
        "--sysctl",
        "--tmpfs",
        "--ulimit",
        "-u",
        "--user",
        "--userns",
        "--uts",
        "-v",
        "--volume",
        "--volume-driver",
        "--volumes-from",
        "-w",
        "--workdir",
        "--kernel-memory",
        "--hooks-dir",
        "--pod",
        "--secret",
        "--systemd",
        "--tz",
        "--authfile",
        "--detach-keys",
    ]
)
_DOCKER_SWITCHES = frozenset(
    [
        "--detach",
        "--disable-content-trust",
        "--init",
        "--interactive",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--privileged",
        "--publish-all",
        "--read-only",
        "--replace",
        "--rm",
        "--sig-proxy",
        "--tty",
    ]
)
_DOCKER_SHORT = frozenset(["-d", "-i", "-t", "-P", *(f for f in _DOCKER_VALUED if len(f) == 2)])
_REQUIREMENT = re.compile(
    r"(vllm|sglang)(?:\[[^\]]*\])?\s*(?:(==|===|>=|<=|~=|!=|>|<|@)\s*(\S+))?\Z"
)


class Reader:
    """Finds the engine processes of shell text; shared by every file shape that holds shell."""

    def __init__(self, source: Callable[[str], Text | None] | None = None) -> None:
        self.source = source
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
        head = _base(words[0].s)
        self._requirements(words)
        self._heredocs(command)
        self._python(command)
        out: list[Draft] = []
        for body, _ in command.heredocs:
            if runs_shell(words):
                out += self.script(body, None, depth=depth + 1)
        if head in _SILENT:
            return out
        env = dict(command.env)
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
        found = find_engine(words)
        if found is not None:
            engine, program, rest = found
            if any(_base(word.s) in ("grep", "pgrep", "pkill", "echo") for word in words[:program]):
                return []
            draft = Draft(engine, words[program].line, words=_until_shell(rest))
            self._wrappers(words[:program], draft)
            draft.image = _job_image(words[:program])
            draft.image_line = draft.image.line if draft.image is not None else 0
            for name, value in env.items():
                draft.set_env(name, value, value.line or draft.line)
            return [draft]
        out = _apptainer_run(words)
        for word in words[1:]:
            if _WORDS.search(word.s) and re.search(r"\s", word.s.strip()):
                typed = word.cut(0, len(word.s.removesuffix("\\n")))  # `screen -X stuff '...\n'`
                nested = self.script(typed, inherit(env), depth=depth + 1)
                image = _job_image(words)
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
            if match and index and _base(words[0].s) in ("sudo", "nohup", "exec", "time"):
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
        if not drafts and not entrypoint:
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
        installs = "install" in texts or ("add" in texts and _base(texts[0]) in ("uv", "poetry"))
        if not installs or (
            not any(
                _base(text).startswith(("pip", "uv", "poetry", "conda", "mamba"))
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

    def _python(self, command: Command) -> None:
        """`python -c CODE` and here-documents that python reads."""
        words = command.words
        at = next((i for i, word in enumerate(words) if _PYTHON.match(_base(word.s))), None)
        if at is None:
            return
        texts = [word.s for word in words]
        if "-c" in texts[at:-1]:
            self.files.append(("inline.py", words[texts.index("-c", at) + 1]))
        if texts[-1] == "-" or at == len(texts) - 1:
            self.files += [("inline.py", body) for body, _ in command.heredocs]

    def _heredocs(self, command: Command) -> None:
        head = _base(command.words[0].s)
        targets = list(command.writes)
        if "tee" in [_base(word.s) for word in command.words[:3]]:
            targets += [word for word in command.words[1:] if not word.s.startswith("-")]
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
    texts = [_base(word.s) for word in words]
    if texts[0] in ("cat", "tee", "echo"):
        return False
    return any(text in ("bash", "sh", "zsh", "ssh", "dash") for text in texts)


def container_run(words: list[Text]) -> int | None:
    """Index behind `docker run`, `podman run`, `nerdctl run` or `docker create`."""
    for index, word in enumerate(words[:-1]):
        if _base(word.s) in ("docker", "podman", "nerdctl") or word.s in ("sudo docker",):
            for at in range(index + 1, min(index + 6, len(words))):
                if words[at].s in ("run", "create"):
                    return at + 1
                if words[at].s in ("exec", "compose", "build", "pull", "stop", "rm", "logs"):
                    return None
            return None
        if index > 8:
            return None
    return None


def find_engine(words: list[Text]) -> tuple[str, int, list[Text]] | None:
    """Engine, index of its program token, and the words behind it."""
    for index, word in enumerate(words):
        text = word.s
        base = _base(text)
        following = words[index + 1].s if index + 1 < len(words) else ""
        if base == "vllm" and following == "serve" and not text.startswith("-"):
            return "vllm", index, words[index + 2 :]
        if base == "sglang" and following == "serve":
            return "sglang", index, words[index + 2 :]
        module = text[2:] if text.startswith("-m") and text[2:] in _MODULES else text
        previous = words[index - 1].s if index else ""
        if module in _MODULES and (previous == "-m" or module != text):
            return _MODULES[module], index, words[index + 1 :]
        if text == "vllm.entrypoints.cli.main" and previous == "-m":
            return ("vllm", index, words[index + 2 :]) if following == "serve" else None
        script = _SCRIPT.match(text)
        if script:
            return ("vllm" if "vllm" in script.group(1) else "sglang"), index, words[index + 1 :]
        if base == "xinference" and following == "launch":
            return _xinference(words, index)
    return None


def _xinference(words: list[Text], index: int) -> tuple[str, int, list[Text]] | None:
    rest = words[index + 2 :]
    for at, word in enumerate(rest):
        flag, sep, value = word.s.partition("=")
        if flag in ("--model-engine", "--model_engine", "-en"):
            name = value if sep else (rest[at + 1].s if at + 1 < len(rest) else "")
            engine = name.lower()
            if engine in ("vllm", "sglang"):
                return engine, index, rest
    return None


def _job_image(words: list[Text]) -> Text | None:
    """Image of `apptainer exec docker://IMAGE` or `srun --container-image=IMAGE`."""
    for index, word in enumerate(words):
        flag, sep, _ = word.s.partition("=")
        if word.s.startswith("docker://"):
            return word.cut(len("docker://"))
        if flag == "--container-image":
            image = word.cut(len(flag) + 1) if sep else words[index + 1]
            image = image.sub(re.compile("#"), lambda _: "/")
            return None if image.s.endswith((".sqsh", ".sif")) else image
    return None


def _apptainer_run(words: list[Text]) -> list[Draft]:
    """`apptainer run docker://IMAGE args`: the image's entry point gets the arguments."""
    if _base(words[0].s) not in ("apptainer", "singularity"):
        return []
    at = next((i for i, word in enumerate(words) if word.s.startswith("docker://")), None)
    if at is None or not any(word.s == "run" for word in words[:at]):
        return []
    image = words[at].cut(len("docker://"))
    engine = image_engine(image, words[at + 1 :])
    if engine is None:
        return []
    return [Draft(engine, image.line, words=words[at + 1 :], image=image, image_line=image.line)]


def image_engine(image: Text | None, command: list[Text]) -> str | None:
    """Engine whose server is the entry point of an image, or whose flags the command holds."""
    from kvbudget.gate.knowledge import engine_names, strong_fields

    flags = {
        word.s.split("=", 1)[0].split(".", 1)[0].lstrip("-").replace("-", "_")
        for word in command
        if word.s.startswith("--")
    }
    first = command[0].s if command else ""
    if (
        first
        and not first.startswith("-")
        and first != "serve"
        and ("/" not in first or first.startswith(("/bin", "/usr")))
        and HOLE not in first
        and re.match(r"[\w.-]+\Z", first) is not None
        and _base(first) in _PROGRAMS
    ):
        return None
    name = image.s.lower() if image is not None else ""
    path = name.split("@")[0].rsplit(":", 1)[0] if "/" in name else name.split("@")[0].split(":")[0]
    for engine in engine_names():
        if flags & set(strong_fields(engine)):
            return engine
    last = path.rsplit("/", 1)[-1]
    if last.startswith("vllm-openai"):
        return "vllm"
    return None


_PROGRAMS = frozenset(
    [
        "bash",
        "sh",
        "zsh",
        "sleep",
        "tail",
        "python",
        "python3",
        "cat",
        "nvidia-smi",
        "ls",
        "echo",
        "env",
        "true",
        "ray",
        "/bin/bash",
        "/bin/sh",
        "vllm",
        "sglang",
        "sglang-router",
        "pip",
        "huggingface-cli",
        "hf",
        "tini",
        "dumb-init",
    ]
)


_IMAGE = re.compile(
    r"[\w.-]+(:\d+)?(/[\w.-]+)+(:[\w.-]+|@sha256:\w+)|\S*(vllm|sglang)\S*[:@/]\S*\Z"
)


def _options_follow(words: list[Text]) -> bool:
    """True where an unknown word behind `docker run` stands for options, not for the image."""
    if not words:
        return False
    following = words[0].s
    if not following.startswith("-"):
        return _IMAGE.match(following) is not None
    flag = following.partition("=")[0]
    short = len(flag) > 1 and flag[1] != "-" and all(f"-{c}" in _DOCKER_SHORT for c in flag[1:])
    return flag in _DOCKER_VALUED or flag in _DOCKER_SWITCHES or short


class DockerOptions:
    """The options of one `docker run`."""

    def __init__(
        self,
        words: list[Text],
        env: dict[str, Text],
        source: Callable[[str], Text | None] | None,
    ) -> None:
        self.image: Text | None = None
        self.command: list[Text] = []
        self.entrypoint: list[Text] | None = None
        self.values: list[tuple[str, Text]] = []
        self.shell_env = env
        self.source = source
        index = 0
        while index < len(words):
            word = words[index]
            text = word.s
            if not text.startswith("-") or text == "-":
                if text == HOLE and _options_follow(words[index + 1 :]):
                    index += 1  # `docker run $OPTS -p 80:80 image`
                    continue
                self.image = word
                self.command = words[index + 1 :]
                break
            flag, sep, _ = text.partition("=")
            if sep:
                self.values.append((flag, word.cut(len(flag) + 1)))
            elif flag in _DOCKER_VALUED:
                if index + 1 < len(words):
                    self.values.append((flag, words[index + 1]))
                index += 1
            elif (
                len(flag) > 2
                and flag[1] != "-"
                and flag[:2] in ("-e", "-p", "-v", "-m", "-w", "-u")
            ):
                self.values.append((flag[:2], word.cut(2)))
            elif len(flag) > 2 and flag[1] != "-" and "-" + flag[-1] in _DOCKER_VALUED:
                if index + 1 < len(words):
                    self.values.append(("-" + flag[-1], words[index + 1]))
                index += 1
            index += 1
        for flag, value in self.values:
            if flag == "--entrypoint" and value.s:
                self.entrypoint = [
                    value.cut(m.start(), m.end()) for m in re.finditer(r"\S+", value.s)
                ]

    def apply(self, draft: Draft) -> None:
        """Cards, limits and variables of the container."""
        host = draft.host
        host.container = True
        for flag, value in self.values:
            if flag == "--gpus" and value.known:
                _gpus(value.s, draft)
            elif flag == "--device" and "nvidia.com/gpu=" in value.s:
                add_cdi(value.s, draft)
            elif flag in ("-m", "--memory"):
                host.memory_limit = binary_size(value.s)
            elif flag == "--shm-size":
                host.shm, host.shm_line = binary_size(value.s), value.line
                if not value.known:
                    host.shm_provided = True
            elif flag == "--ipc" and value.s == "host":
                host.ipc_host = True
            elif flag in ("-e", "--env"):
                name, sep, _ = value.s.partition("=")
                if sep:
                    draft.set_env(name, value.cut(len(name) + 1), value.line)
                elif name in self.shell_env:
                    draft.set_env(name, self.shell_env[name], value.line)
            elif flag == "--env-file" and self.source is not None and value.known:
                text = self.source(value.s)
                if text is not None:
                    for name, item in env_file(text):
                        if name not in draft.env:
                            draft.set_env(name, item, value.line)


def env_file(text: Text) -> list[tuple[str, Text]]:
    """`NAME=value` lines of a .env file."""
    out: list[tuple[str, Text]] = []
    for line in text.split_lines():
        row = line.strip()
        if row.s.startswith("export "):
            row = row.cut(7).strip()
        name, sep, _ = row.s.partition("=")
        if not sep or row.s.startswith("#") or not re.fullmatch(r"[A-Za-z_]\w*", name.strip()):
            continue
        value = row.cut(len(name) + 1).strip()
        if (
            value.s[:1] in "\"'"
            and value.s[:1]
            and value.s[-1:] == value.s[:1]
            and len(value.s) > 1
        ):
            value = value.cut(1, -1)
        else:
            comment = value.s.find(" #")
            value = value.cut(0, comment).strip() if comment >= 0 else value
        out.append((name.strip(), value))
    return out


def _gpus(text: str, draft: Draft) -> None:
    text = text.strip().strip("\"'")
    host = draft.host
    if is_count(text):
        host.gpus = int(text)
        return
    match = re.search(r"device=([\w,.:-]+)", text)
    if match:
        ids = gpu_ids(match.group(1))
        if ids:
            host.gpu_ids, host.gpus, host.share_ids = ids, len(ids), ids
        return
    match = re.search(r"count=(\d+)", text)
    if match:
        host.gpus = int(match.group(1))


def add_cdi(text: str, draft: Draft) -> None:
    """`nvidia.com/gpu=0` (CDI device of podman)."""
    value = text.split("nvidia.com/gpu=", 1)[1].split(":")[0]
    host = draft.host
    if value == "all" or HOLE in value:
        return
    host.gpu_ids = [*(host.gpu_ids or []), value]
    host.gpus, host.share_ids = len(host.gpu_ids), host.gpu_ids


def _until_shell(words: list[Text]) -> list[Text]:
    """Words that belong to the engine (quoted operators are data, real ones are gone already)."""
    return [word for word in words if word.s not in ("2>&1",)]


def _base(text: str) -> str:
    return text.rsplit("/", 1)[-1]


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
