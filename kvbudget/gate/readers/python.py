"""Python: LLM(), AsyncEngineArgs(), sgl.Engine(), LLMConfig(), argv lists for subprocess."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from kvbudget.gate.draft import Draft, Given
from kvbudget.gate.engines import (
    find_engine,
    python_common,
    python_names,
    python_packages,
    says_engine,
)
from kvbudget.gate.hardware import card
from kvbudget.gate.knowledge import engine, strong_fields
from kvbudget.gate.nodes import Malformed
from kvbudget.gate.program import inherit, share
from kvbudget.gate.readers import python_containers
from kvbudget.gate.readers.python_names import Names
from kvbudget.gate.readers.python_values import (
    Items,
    Map,
    as_plain,
    as_string,
    dotted,
)
from kvbudget.gate.shell import Command
from kvbudget.gate.shell_words import Scope
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_RUNNER = re.compile(
    r"(?:.*_)?(?:run|popen|call|output|system|exec[lv]?[ep]*|execute|launch|spawn[lv]?[ep]*|start"
    r"|shell|command|cmd)(?:_.*)?\Z",
    re.I,
)
"""Names of functions that start the command they are given."""
_UNKNOWN = re.compile(rf"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|{HOLE}")
"""A value that a shell put into the code, outside of strings: a name nobody defines stands for it."""
_INSTALLERS = {"pip_install", "uv_pip_install"}


def read(context: Context) -> None:
    """A Python file. Raises Malformed with the line of the syntax error."""
    context.drafts.extend(module(context, context.text))


def module(context: Context, text: Text) -> list[Draft]:
    """Drafts of Python text that carries its own lines."""
    if not text.known:
        text = text.sub(_UNKNOWN, lambda match: "_" if match.group() == HOLE else None)
    try:
        tree = ast.parse(text.s)
    except SyntaxError as exc:
        lines = _rows(text)
        row = min(max((exc.lineno or 1) - 1, 0), len(lines) - 1)
        raise Malformed("Python syntax", lines[row], str(exc.msg)) from None
    except (ValueError, MemoryError, RecursionError):
        raise Malformed("Python syntax", 1, "cannot be parsed") from None
    visitor = _Visitor(context, text, _rows(text))
    visitor.env.update(context.env)
    visitor.visit_body(tree.body)
    visitor.finish()
    share(visitor.drafts, context.path)
    return visitor.drafts


def _rows(text: Text) -> list[int]:
    """Physical line of each line of the text."""
    rows = [text.line or 1]
    for index, char in enumerate(text.s):
        if char == "\n":
            after = text.lines[index + 1] if index + 1 < len(text.lines) else text.lines[index] + 1
            rows.append(after)
    return rows


class _Visitor(Names):
    def __init__(self, context: Context, text: Text, rows: list[int]) -> None:
        super().__init__(text, rows)
        self.context = context
        self.drafts: list[Draft] = []
        self.done: set[int] = set()

    # ---- expressions ----
    def _expressions(self, node: ast.AST) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Assert, ast.Compare)):  # words that are looked at, not run
                self.done.update(id(part) for part in ast.walk(inner))
            elif isinstance(inner, ast.Call) and id(inner) not in self.done:
                self.done.add(id(inner))
                self._call(inner)
            elif isinstance(inner, (ast.List, ast.Tuple)) and id(inner) not in self.done:
                self.done.add(id(inner))
                self._list(inner)

    # ---- engines ----
    def _call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        last = name.rsplit(".", 1)[-1]
        if last in ("append", "extend", "update", "setdefault") and isinstance(
            node.func, ast.Attribute
        ):
            self._mutate(node, last)
        known = self.origin(node.func).rsplit(".", 1)[-1]
        engine_name = python_names().get(known)
        if engine_name and self._is_engine(name, known, engine_name, node):
            self._engine(node, engine_name)
        elif self._container(node, name):
            return
        elif _RUNNER.match(last) and node.args:
            self._runner(node)
        elif last == "split":
            self._list(node)
        elif last in _INSTALLERS:
            self._install(node)

    def _container(self, node: ast.Call, name: str) -> bool:
        """`containers.run(IMAGE, command=...)` and the like; their words are no argv of their own."""
        docker = name.endswith(("containers.run", "containers.create"))
        if not docker and not any(word.arg == "image" for word in node.keywords):
            return False
        keywords = Map()
        if docker:
            for key, item in zip(("image", "command"), node.args, strict=False):
                keywords.put(key, self.value(item), self.line(item))
        self._keywords(node, keywords)
        if not python_containers.is_container(keywords):
            return False
        found = python_containers.drafts(self.context, keywords, self.line(node))
        if found:
            self.done.update(id(part) for part in ast.walk(node))
            self.drafts += found
        return bool(found)

    def _install(self, node: ast.Call) -> None:
        """Pins of an image that is built in code: `.pip_install("engine==1.2.3")`."""
        reader = self.context.reader()
        for arg in node.args:
            word = self.value(arg)
            if isinstance(word, str):
                install = [Text.on(part, self.line(arg)) for part in ("pip", "install", word)]
                reader.command(Command(install, {}), Scope())
        self.context.pins.extend(reader.pins)

    def _is_engine(self, name: str, last: str, engine_name: str, node: ast.Call) -> bool:
        """By where the class comes from; of unknown origin, by a flag only that engine has."""
        root = name.split(".")[0]
        origin = self.imports.get(root, "")
        if {origin.split(".")[0], root} & python_packages():
            return bool(node.keywords or node.args)
        if last in python_common() and origin:
            return False
        words = {keyword.arg for keyword in node.keywords}
        return bool(words & {"engine_kwargs", *strong_fields(engine_name)})

    def _engine(self, node: ast.Call, engine_name: str) -> None:
        keywords = Map()
        self._keywords(node, keywords)
        callee = node.func
        line = self.rows[
            min((getattr(callee, "end_lineno", None) or callee.lineno) - 1, len(self.rows) - 1)
        ]
        draft = Draft(engine_name, line, python_call=True)
        for name, text in self.env.items():
            draft.set_env(name, text, text.line or line)
        if keywords.items.keys() & {"engine_kwargs", "model_loading_config"}:
            self._llm_config(draft, keywords)
        else:
            field = engine(engine_name).roles["model"]
            if node.args:
                self._given(draft, field, self.value(node.args[0]), self.line(node.args[0]), field)
            for name, (value, item_line) in keywords.items.items():
                self._given(draft, name, value, item_line, name)
        self.drafts.append(draft)

    def _given(self, draft: Draft, name: str, value: Any, line: int, spelled: str) -> None:  # noqa: ANN401
        option = engine(draft.engine).options.get(name) or engine(draft.engine).spelled.get(
            "--" + name.replace("_", "-")
        )
        if option is None:
            return
        plain = as_plain(value)
        draft.given.append(Given(option.name, plain, line, spelled))

    def _llm_config(self, draft: Draft, keywords: Map) -> None:
        kwargs = keywords.items.get("engine_kwargs", (None, 0))[0]
        if isinstance(kwargs, Map):
            for name, (value, line) in kwargs.items.items():
                self._given(draft, name, value, line, name)
        if "model_source" in keywords.items:
            value, line = keywords.items["model_source"]
            draft.model_hint = Text.on(as_string(value), line)
        loading = keywords.items.get("model_loading_config", (None, 0))[0]
        if isinstance(loading, Map):
            for key in ("model_source", "model_id"):
                if key in loading.items:
                    value, line = loading.items[key]
                    draft.model_hint = Text.on(as_string(value), line)
                    break
        kind = keywords.items.get("accelerator_type", (None, 0))[0]
        if isinstance(kind, str):
            draft.host.gpu_type = card(kind)
        runtime = keywords.items.get("runtime_env", (None, 0))[0]
        variables = (
            runtime.items.get("env_vars", (None, 0))[0] if isinstance(runtime, Map) else None
        )
        if isinstance(variables, Map):
            for name, (value, line) in variables.items.items():
                draft.set_env(name, Text.on(as_string(value), line), line)

    def _list(self, node: ast.List | ast.Tuple | ast.Call) -> None:
        held = self.value(node)
        if (
            isinstance(held, Items)
            and held.draft is None
            and any(isinstance(item, str) and says_engine(item) for item, _ in held.items)
        ):
            self._argv(held, {})

    def _argv(self, items: Items, env: dict[str, Text]) -> None:
        words = [Text.on(as_string(item), line) for item, line in items.items]
        found = find_engine(words)
        if found is None:
            return
        name, at, rest = found
        draft = Draft(name, words[at].line, words=rest)
        for key, value in {**self.env, **env}.items():
            draft.set_env(key, value, value.line or draft.line)
        items.draft, items.start = draft, len(words) - len(rest)
        self.drafts.append(draft)

    def finish(self) -> None:
        """Words appended to an argv after its definition count too."""
        for items in self.sequences.values():
            if items.draft is not None:
                words = [Text.on(as_string(item), line) for item, line in items.items]
                items.draft.words = words[items.start :]

    def _runner(self, node: ast.Call) -> None:
        first = node.args[0]
        env: dict[str, Text] = {}
        for keyword in node.keywords:
            if keyword.arg == "env":
                inner = self.value(keyword.value)
                if isinstance(inner, Map):
                    for key, (item, line) in inner.items.items():
                        env[key] = Text.on(as_string(item), line)
        if isinstance(first, (ast.List, ast.Tuple)):
            self.done.add(id(first))
            self._argv(self._sequence(first), env)
            return
        value = self.value(first)
        if isinstance(value, str) and len(node.args) > 1 and not re.search(r"\s", value):
            words = [(self.value(item), self.line(item)) for item in node.args]
            self._argv(Items(words), env)  # create_subprocess_exec("vllm", "serve", ...)
            return
        if isinstance(value, Items):
            if value.draft is None:
                self._argv(value, env)
            else:
                for key, item in env.items():
                    value.draft.set_env(key, item, item.line or value.draft.line)
            return
        if isinstance(value, str) and says_engine(value):
            reader = self.context.reader()
            scope = inherit({**self.env, **env})
            self.drafts.extend(reader.script(self.said(first, value), scope, depth=1))
            self.context.pins.extend(reader.pins)
