"""Amazon ECS task definitions (JSON, or CloudFormation-style maps)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.gate.nodes import EMPTY, Node
from kvbudget.gate.readers.variables import Env, finish_env, word_list
from kvbudget.gate.units import is_count

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_MIB = 1 << 20


def containers(doc: Node) -> Node:
    """containerDefinitions, at the top or under taskDefinition."""
    for path in (("containerDefinitions",), ("taskDefinition", "containerDefinitions")):
        if doc.get(*path).is_list:
            return doc.get(*path)
    return EMPTY


def read(context: Context, doc: Node) -> None:
    """Containers of a task; sizes are MiB."""
    task = doc if doc.get("containerDefinitions").is_list else doc.get("taskDefinition")
    for container in containers(doc).elements():
        env = Env()
        for item in container.get("environment").elements():
            name = item.get("name")
            env.put(name.s, item.get("value").text, name.line)
        image = container.get("image").text
        reader = context.reader()
        drafts = reader.image_command(
            image if image.s else None,
            word_list(container.get("entryPoint"), Env()) or None,
            word_list(container.get("command"), Env()),
            dict(env.values),
        )
        context.absorb(reader)
        for draft in drafts:
            finish_env(draft, env)
            host = draft.host
            for node in (container, task):
                size = node.get("memory").s
                if is_count(size) and host.memory_limit is None:
                    host.memory_limit = int(size) * _MIB
            shm = container.get("linuxParameters", "sharedMemorySize")
            if is_count(shm.s):
                host.shm = int(shm.s) * _MIB
                host.shm_line = container.get("linuxParameters").key_line("sharedMemorySize")
            if task.get("ipcMode").s == "host":
                host.ipc_host = True
            for need in container.get("resourceRequirements").elements():
                if need.get("type").s == "GPU" and is_count(need.get("value").s):
                    host.gpus = int(need.get("value").s)
            host.share_unit = f"{context.path}#task"
        context.drafts.extend(drafts)
