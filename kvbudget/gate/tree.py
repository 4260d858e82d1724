"""The files to look at: the walk, what is skipped, and safe access to neighbours."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.gate.knowledge import engine, engine_names, strong_fields
from kvbudget.gate.source import Text

if TYPE_CHECKING:
    from kvbudget.gate.config_map import ConfigMap

MAX_BYTES = 1 << 20
_NEVER = {".git", "node_modules", ".venv", "vendor", "third_party", "site-packages"}
_EXTENSIONS = {
    "sh", "bash", "zsh", "ps1", "yaml", "yml", "json", "ipynb", "py", "toml", "hcl", "sbatch",
    "slurm", "job", "pbs", "lsf", "ksh", "service", "container", "tf", "nomad", "env", "mk", "j2", "tpl",
}  # fmt: skip
_NAMES = re.compile(
    r"(Dockerfile|Containerfile)|.*\.(dockerfile|Dockerfile|containerfile)\Z"
    r"|Kustomization\Z|(GNU)?[Mm]akefile\Z|\.?[Jj]ustfile\Z|serving\.properties\Z|.*\.nomad|\.env"
)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_MARK = re.compile(rb"kvbudget:\s*ignore|kvbudget\.dev/ignore")


@lru_cache(maxsize=1)
def _engine_words() -> tuple[bytes, ...]:
    """Engines and the flags that decide most; a broken file that says one of them is an error."""
    fractions = [engine(name).roles["fraction"] for name in engine_names()]
    squeezed = [name.replace("_", "") for name in fractions]
    return tuple(word.encode() for word in (*engine_names(), *fractions, *squeezed))


@lru_cache(maxsize=1)
def _setting_words() -> tuple[bytes, ...]:
    """Settings by which a file is known that never says an engine's name."""
    fields = [field for name in engine_names() for field in strong_fields(name)]
    return tuple(word.encode() for word in ("engine_kwargs", "model_loading_config", *fields))


@dataclass
class Found:
    """One file of the walk."""

    path: str
    absolute: Path
    named: bool
    says_engine: bool = False
    """An engine's name or its best known setting occurs: a broken file is then an error."""


@dataclass
class Tree:
    """Files below the working directory (or named ones), and what is read of them."""

    root: Path
    files: list[Found] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _texts: dict[Path, Text | None] = field(default_factory=dict)
    consumed: set[str] = field(default_factory=set)
    """Files (and files of ConfigMaps) that another file refers to."""
    config_maps: list[ConfigMap] | None = None
    """Found by their reader on the first reference."""

    def load(self, found: Found) -> tuple[Text | None, str | None]:
        """Text of a file that may hold an invocation; None for others, with a note if notable."""
        try:
            size = found.absolute.stat().st_size
            if size > MAX_BYTES:
                return None, f"{found.path}: larger than 1 MiB, not read"
            data = found.absolute.read_bytes()
        except OSError as exc:
            if found.named:
                raise InputError(
                    f"cannot read {found.path}: {exc.strerror}", "name readable files"
                ) from exc
            return None, f"{found.path}: {exc.strerror}"
        if data[:2] in _UTF16:
            data = data.decode("utf-16", "replace").encode()
        low = data.lower().replace(b"-", b"_")
        found.says_engine = any(word in low for word in _engine_words())
        relevant = (
            found.named
            or found.says_engine
            or found.absolute.stem.lower() == "kustomization"  # it only points at others
            or any(word in low for word in _setting_words())
            or ("/templates/" in f"/{found.path}" and b"{{" in low and b"containers:" in low)
        )  # a chart's template may leave every telling word to values and helpers
        if not relevant and not _MARK.search(data):
            return None, None
        if b"\0" in data[:4096]:
            return None, None
        return decode(data), None

    def neighbour(self, path: str, base: str) -> tuple[str, Text] | None:
        """A file named in `base`, if it lies inside the scanned tree (also by its last parts)."""
        if not path or "\0" in path or "\n" in path:
            return None
        clean = path.removeprefix("-")
        folder = self.root / PurePosixPath(base).parent
        tries = [folder / clean, self.root / clean] if not clean.startswith("/") else []
        for candidate in tries:
            text = self._inside(candidate)
            if text is not None:
                relative = os.path.relpath(candidate, self.root).replace(os.sep, "/")
                return relative, text
        return None

    def by_name(self, name: str) -> list[Found]:
        """Files of the walk with this last part of their path."""
        return [found for found in self.files if PurePosixPath(found.path).name == name]

    def read(self, relative: str) -> Text | None:
        """A file of the tree by its path."""
        return self._inside(self.root / relative)

    def _inside(self, candidate: Path) -> Text | None:
        try:
            real = candidate.resolve()
            if not real.is_relative_to(self.root.resolve()) or not real.is_file():
                return None
            if real in self._texts:
                return self._texts[real]
            if real.stat().st_size > MAX_BYTES:
                return None
            text = decode(real.read_bytes())
        except (OSError, ValueError, RuntimeError):
            return None
        self._texts[real] = text
        return text


def decode(data: bytes) -> Text:
    """UTF-8 (or UTF-16 with a mark) with universal line ends; undecodable bytes become U+FFFD."""
    if data[:2] in _UTF16:
        s = data.decode("utf-16", "replace")
    else:
        s = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return Text.file(s.replace("\r\n", "\n").replace("\r", "\n").replace("\ue000", "\ufffd"))


def wanted(name: str) -> bool:
    """True for a file name the gate has a reader for."""
    return name.rsplit(".", 1)[-1] in _EXTENSIONS or _NAMES.match(name) is not None


def collect(paths: list[str], include: list[str], exclude: list[str], root: Path) -> Tree:
    """Walk `paths` (files or folders) from `root`, the working directory. Raises InputError."""
    tree = Tree(root)
    seen: set[str] = set()
    for given in paths:
        path = Path(given) if Path(given).is_absolute() else root / given
        if path.is_dir():
            for item in _folder(path):
                _add(tree, seen, item, False, include, exclude)
        elif path.exists():
            _add(tree, seen, path, True, include, exclude)
        else:
            raise InputError(f"no such file or folder: {given}", "name files or folders to check")
    tree.files.sort(key=lambda found: found.path)
    return tree


def _add(
    tree: Tree, seen: set[str], path: Path, named: bool, include: list[str], exclude: list[str]
) -> None:
    relative = os.path.relpath(path, tree.root).replace(os.sep, "/")
    if relative in seen:
        return
    if any(matches(relative, pattern) for pattern in exclude):
        return
    asked = named or wanted(path.name) or any(matches(relative, p) for p in include)
    if not asked and ("." in path.name.lstrip(".") or not _shebang(path)):
        return
    if not named and path.is_symlink():
        try:
            if not path.resolve().is_relative_to(tree.root.resolve()):
                tree.notes.append(f"{relative}: a link out of the tree, not followed")
                return
        except (OSError, RuntimeError):
            return
    seen.add(relative)
    tree.files.append(Found(relative, path, named))


def _shebang(path: Path) -> bool:
    try:
        if path.is_symlink() or not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(2) == b"#!"
    except OSError:
        return False


def _folder(path: Path) -> list[Path]:
    tracked = _git_files(path)
    if tracked is not None:
        return tracked
    out: list[Path] = []
    for folder, names, files in os.walk(path):
        names[:] = sorted(name for name in names if name not in _NEVER)
        base = Path(folder)
        out.extend(base / name for name in files)
    return out


def _git_files(path: Path) -> list[Path] | None:
    at = path.resolve()
    if not any((parent / ".git").exists() for parent in (at, *at.parents)):
        return None
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached"],
            cwd=path, capture_output=True, check=False, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    out = []
    for raw in done.stdout.split(b"\0"):
        name = raw.decode("utf-8", "surrogateescape")
        if name and not _NEVER.intersection(name.split("/")):
            file = path / name
            if file.is_file():
                out.append(file)
    return out


def matches(path: str, pattern: str) -> bool:
    """Glob with `**` over folders."""
    return _glob(pattern).fullmatch(path) is not None


_globs: dict[str, re.Pattern[str]] = {}


def _glob(pattern: str) -> re.Pattern[str]:
    found = _globs.get(pattern)
    if found is None:
        parts = re.split(r"(\*\*/|/\*\*|\*\*|\*|\?)", pattern.removeprefix("./"))
        kinds = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        body = "".join(kinds.get(part) or re.escape(part) for part in parts)
        if "/" not in pattern and "**" not in pattern:
            body = "(?:.*/)?" + fnmatch.translate(pattern).removesuffix(r"\Z").removesuffix("\\z")
        found = _globs[pattern] = re.compile(body, re.S)
    return found
