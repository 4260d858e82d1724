"""What a reader knows of one engine process before its arguments are understood."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from kvbudget.gate.config_map import Mounted


@dataclass
class EnvValue:
    """One environment variable and where its name stands."""

    value: Text
    line: int
    file: str | None = None


@dataclass
class Given:
    """A setting that is not a word: a key of YAML, JSON or Python with a typed value."""

    name: str
    value: Any
    line: int
    spelled: str


@dataclass
class Pin:
    """A package requirement of an engine (`vllm==0.11.2`)."""

    engine: str
    version: str | None
    line: int


@dataclass
class Host:
    """What the file says of the machine side of a process: cards, memory, /dev/shm."""

    gpus: int | None = None
    gpu_ids: list[str] | None = None
    gpu_type: str | None = None
    memory_limit: int | None = None
    shm: int | None = None
    shm_line: int = 0
    shm_tmpfs: tuple[int | None, int] | None = None
    ipc_host: bool = False
    container: bool = False
    shm_provided: bool = False
    nodes: int = 1
    node_ram: int | None = None
    count_shares: bool = False
    share_unit: str | None = None
    share_ids: list[str] | None = None


@dataclass
class Draft:
    """One engine process as a reader found it."""

    engine: str
    line: int
    words: list[Text] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)
    env: dict[str, EnvValue] = field(default_factory=dict)
    image: Text | None = None
    image_line: int = 0
    backend_version: Text | None = None
    version_line: int = 0
    pins: list[Pin] | None = None
    model_hint: Text | None = None
    host: Host = field(default_factory=Host)
    config_base: str | None = None
    """The file this is read from, if it counts only where no other file refers to it."""
    python_call: bool = False
    lmcache: bool = False
    mounts: list[tuple[str, str]] = field(default_factory=list)
    """Folder or file of the host and where the container sees it."""
    files: dict[str, Mounted] = field(default_factory=dict)
    """Files of ConfigMaps by the path under which the container sees them."""
    annotations: dict[str, tuple[str, int]] = field(default_factory=dict)

    def set_env(self, name: str, value: Text, line: int, file: str | None = None) -> None:
        """The last assignment of a variable counts."""
        self.env[name] = EnvValue(value, line, file)


@dataclass
class Overlay:
    """Processes of a kustomization: its bases with its patches and images applied."""

    path: str
    drafts: list[Draft]
    bases: set[tuple[str, int, str]]
    """File, line and engine of the same processes without the overlay."""
    patches: set[str]
    """Files that were applied and are no processes of their own."""
    files: set[str]
    """Files of the overlay itself."""
    line: int
    """Where a process stands of which the overlay changes no word, only a variable."""


def gpu_ids(text: str) -> list[str] | None:
    """`0,1` or `GPU-uuid` -> ids; None for all, none, void or an unknown value."""
    text = text.strip().strip("\"'")
    if not text or HOLE in text or text in ("all", "none", "void", "-1", "NoDevFiles"):
        return None
    return [part.strip() for part in text.split(",") if part.strip()]
