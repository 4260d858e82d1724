"""`docker run` and its kin: options, image, cards, limits and variables of a container."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from kvbudget.gate.draft import Draft, gpu_ids
from kvbudget.gate.engines import base, data, image_engine
from kvbudget.gate.source import HOLE, Text
from kvbudget.gate.units import binary_size, is_count

if TYPE_CHECKING:
    from collections.abc import Callable

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
    known = {*_valued(), *data()["container_options"]["switches"]}
    short = len(flag) > 1 and flag[1] != "-" and all(f"-{char}" in known for char in flag[1:])
    return flag in known or short


@lru_cache(maxsize=1)
def _valued() -> frozenset[str]:
    return frozenset(data()["container_options"]["valued"])


def container_run(words: list[Text]) -> int | None:
    """Index behind `docker run`, `podman run`, `nerdctl run` or `docker create`."""
    for index, word in enumerate(words[:-1]):
        if base(word.s) in ("docker", "podman", "nerdctl") or word.s in ("sudo docker",):
            for at in range(index + 1, min(index + 6, len(words))):
                if words[at].s in ("run", "create"):
                    return at + 1
                if words[at].s in ("exec", "compose", "build", "pull", "stop", "rm", "logs"):
                    return None
            return None
        if index > 8:
            return None
    return None


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
            elif flag in _valued():
                if index + 1 < len(words):
                    self.values.append((flag, words[index + 1]))
                index += 1
            elif (
                len(flag) > 2
                and flag[1] != "-"
                and flag[:2] in ("-e", "-p", "-v", "-m", "-w", "-u")
            ):
                self.values.append((flag[:2], word.cut(2)))
            elif len(flag) > 2 and flag[1] != "-" and "-" + flag[-1] in _valued():
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
            elif flag in ("-v", "--volume"):
                add_mount(value.s, draft)
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


def add_mount(text: str, draft: Draft) -> None:
    """`./conf:/conf:ro`; a folder behind `$PWD` is seen from the file."""
    host, sep, rest = text.partition(":")
    inside = rest.split(":")[0]
    if inside.rstrip("/") == "/dev/shm":
        draft.host.shm_provided = True
    host = host.removeprefix(f"{HOLE}/")
    if sep and inside.startswith("/") and host and HOLE not in host + inside:
        draft.mounts.append((host, inside))


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


def job_image(words: list[Text]) -> Text | None:
    """Image of `apptainer exec docker://IMAGE` or `srun --container-image=IMAGE`."""
    for index, word in enumerate(words):
        flag, sep, _ = word.s.partition("=")
        if word.s.startswith("docker://"):
            return word.cut(len("docker://"))
        if flag == "--container-image":
            given = [word.cut(len(flag) + 1)] if sep else words[index + 1 : index + 2]
            image = Text.join(given).sub(re.compile("#"), lambda _: "/")
            return None if image.s.endswith((".sqsh", ".sif")) else image
    return None


def apptainer_run(words: list[Text]) -> list[Draft]:
    """`apptainer run docker://IMAGE args`: the image's entry point gets the arguments."""
    if base(words[0].s) not in ("apptainer", "singularity"):
        return []
    at = next((i for i, word in enumerate(words) if word.s.startswith("docker://")), None)
    if at is None or not any(word.s == "run" for word in words[:at]):
        return []
    image = words[at].cut(len("docker://"))
    engine = image_engine(image, words[at + 1 :])
    if engine is None:
        return []
    return [Draft(engine, image.line, words=words[at + 1 :], image=image, image_line=image.line)]
