"""Containers that Python starts: a call with `image=` and the words of its command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.gate.draft import gpu_ids
from kvbudget.gate.readers.python_values import Items, Map, as_string
from kvbudget.gate.readers.variables import split_string
from kvbudget.gate.source import HOLE, Text
from kvbudget.gate.units import binary_size

if TYPE_CHECKING:
    from kvbudget.gate.context import Context
    from kvbudget.gate.draft import Draft, Host

_ENTRY = ("entrypoint", "cmds")
_WORDS = ("command", "args", "arguments")


def is_container(keywords: Map) -> bool:
    """True for an image and a command (the SDKs of Docker and Kubernetes, operators of Airflow)."""
    return "image" in keywords.items and any(key in keywords.items for key in (*_ENTRY, *_WORDS))


def drafts(context: Context, keywords: Map, line: int) -> list[Draft]:
    """The engine of the container, with the limits that the call sets."""
    image = _text(keywords, "image", line)
    entry = [word for key in _ENTRY for word in _words(keywords, key)]
    command = [word for key in _WORDS for word in _words(keywords, key)]
    env: dict[str, Text] = {}
    for key in ("environment", "env"):
        said = keywords.items.get(key, (None, 0))[0]
        for name, (value, at) in said.items.items() if isinstance(said, Map) else ():
            env[name] = Text.on(as_string(value), at)
    reader = context.reader()
    out = reader.image_command(image, entry or None, command, env)
    for draft in out:
        host = draft.host
        limit, shm = _text(keywords, "mem_limit", line), _text(keywords, "shm_size", line)
        host.memory_limit = binary_size(limit.s) if limit.s and limit.known else None
        if shm.s:
            host.shm, host.shm_line = (binary_size(shm.s) if shm.known else None), shm.line
            host.shm_provided = host.shm is None
        host.ipc_host = _text(keywords, "ipc_mode", line).s == "host"
        # what other SDKs say of limits is not read, and the default of /dev/shm is not judged
        host.shm_provided = host.shm_provided or not _of_docker(keywords)
        _requests(host, keywords.items.get("device_requests", (None, 0))[0])
    return out


def _of_docker(keywords: Map) -> bool:
    """True where an option is one of Docker's."""
    return any(
        key in keywords.items for key in ("shm_size", "mem_limit", "device_requests", "detach")
    )


def _text(keywords: Map, key: str, line: int) -> Text:
    value, at = keywords.items.get(key, ("", line))
    return Text.on(as_string(value), at or line)


def _words(keywords: Map, key: str) -> list[Text]:
    value, at = keywords.items.get(key, (None, 0))
    if isinstance(value, Items):
        return [Text.on(as_string(item), line) for item, line in value.items]
    return split_string(Text.on(value, at)) if isinstance(value, str) else []


def _requests(host: Host, said: Any) -> None:  # noqa: ANN401 - any value
    for request, _ in said.items if isinstance(said, Items) else ():
        if not isinstance(request, Map):
            continue
        count = request.items.get("count", (None, 0))[0]
        ids = request.items.get("device_ids", (None, 0))[0]
        if isinstance(count, int) and count > 0:
            host.gpus = count
        if isinstance(ids, Items):
            known = ",".join(as_string(item) for item, _ in ids.items)
            host.gpu_ids = host.share_ids = gpu_ids(known) if HOLE not in known else None
