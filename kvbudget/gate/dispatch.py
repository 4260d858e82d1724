"""Which reader a file gets, by name, extension or shebang."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvbudget.gate.readers import (
    ansible,
    configs,
    dockerfile,
    hcl,
    make,
    manifests,
    notebook,
    python,
    scripts,
    toml,
    units,
)
from kvbudget.gate.readers.jinja import filled

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.gate.context import Context

_NAMES: dict[str, Callable[[Context], None]] = {
    "makefile": make.read,
    "gnumakefile": make.read,
    "justfile": scripts.read_just,
    ".justfile": scripts.read_just,
    "kustomization": manifests.read,
    "serving.properties": configs.read_properties,
}
_EXTENSIONS: dict[str, Callable[[Context], None]] = {
    "dockerfile": dockerfile.read,
    "containerfile": dockerfile.read,
    "mk": make.read,
    "service": units.read,
    "container": units.read,
    "hcl": hcl.read,
    "tf": hcl.read,
    "nomad": hcl.read,
    "yaml": manifests.read,
    "yml": manifests.read,
    "json": manifests.read_json,
    "toml": toml.read,
    "ipynb": notebook.read,
    "py": notebook.read_python,
    "ps1": scripts.read_powershell,
    "sh": scripts.read_shell,
    "bash": scripts.read_shell,
    "zsh": scripts.read_shell,
    "sbatch": scripts.read_shell,
    "slurm": scripts.read_shell,
    "job": scripts.read_shell,
    "pbs": scripts.read_shell,
    "lsf": scripts.read_shell,
    "ksh": scripts.read_shell,
    "md": scripts.read_markdown,
}
_JINJA_OF = ("yaml", "yml", "service", "sh")
_NO_PROGRAM = ("env", "txt")


def dispatch(context: Context) -> None:
    """Read one file. Raises Malformed or UnclosedQuote for a broken one."""
    low = context.name.lower()
    extension = low.rsplit(".", 1)[-1] if "." in low else ""
    if low.startswith(("dockerfile", "containerfile")):
        dockerfile.read(context)
    elif low in _NAMES:
        _NAMES[low](context)
    elif extension in _EXTENSIONS:
        _EXTENSIONS[extension](context)
    elif extension == "j2":
        _jinja(context, low.removesuffix(".j2").rsplit(".", 1)[-1])
    elif extension not in _NO_PROGRAM and context.text.s.startswith("#!"):
        _shebang(context)


def _jinja(context: Context, kind: str) -> None:
    """A Jinja template of a unit, a script or a manifest, read as what it makes."""
    if kind not in _JINJA_OF:
        return
    body = context.text
    if kind not in ("yaml", "yml"):
        body = filled(body, ansible.role_defaults(context))
    inner = context.inner(str(PurePosixPath(context.path).with_suffix("")), body)
    dispatch(inner)
    for draft in inner.drafts:
        draft.config_base = context.path  # a task that writes it may know more variables
    context.drafts, context.pins = inner.drafts, inner.pins


def _shebang(context: Context) -> None:
    first = context.text.s.split("\n", 1)[0]
    if re.search(r"\b(ba|z|da|k)?sh\b", first):
        scripts.read_shell(context)
    elif "python" in first:
        python.read(context)
