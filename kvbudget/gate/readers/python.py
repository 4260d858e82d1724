"""Python: LLM(), AsyncEngineArgs(), sgl.Engine(), LLMConfig(), argv lists for subprocess."""

from __future__ import annotations

import ast
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
from kvbudget.gate.readers.python_values import (
    UNKNOWN,
    Items,
    Map,
    Values,
    as_plain,
    as_string,
    dotted,
)
from kvbudget.gate.shell import Command
from kvbudget.gate.shell_words import Scope
from kvbudget.gate.source import HOLE, Text, align

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_RUNNERS = {
    "run", "Popen", "call", "check_call", "check_output", "system", "popen",
    "create_subprocess_exec", "create_subprocess_shell", "execvp", "execv", "spawn",
}  # fmt: skip


_INSTALLERS = {"pip_install", "uv_pip_install"}


def read(context: Context) -> None:
    """A Python file. Raises Malformed with the line of the syntax error."""
    context.drafts.extend(module(context, context.text))


def module(context: Context, text: Text) -> list[Draft]:
    """Drafts of Python text that carries its own lines."""
    try:
        tree = ast.parse(text.s)
    except SyntaxError as exc:
        lines = _rows(text)
        row = min(max((exc.lineno or 1) - 1, 0), len(lines) - 1)
        raise Malformed("Python syntax", lines[row], str(exc.msg)) from None
    except (ValueError, MemoryError, RecursionError):
        raise Malformed("Python syntax", 1, "cannot be parsed") from None
    visitor = _Visitor(context, text, _rows(text))
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


class _Visitor(Values):
    def __init__(self, context: Context, text: Text, rows: list[int]) -> None:
        super().__init__(rows)
        self.context, self.text = context, text
        self.drafts: list[Draft] = []
        self.done: set[int] = set()
        self.depth = 0

    # ---- statements ----
    def visit_body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._function(node)
        elif isinstance(node, ast.ClassDef):
            self.imports[node.name] = f".{node.name}"
            self.scopes.append({})
            self.visit_body(node.body)
            for name, value in self.scopes.pop().items():
                self.scopes[-1][f"{node.name}.{name}"] = value
        elif isinstance(node, ast.Assign):
            self._expressions(node.value)
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._expressions(node.value)
            self._assign(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._expressions(node.value)
            self._augment(node)
        elif isinstance(node, (ast.If, ast.For, ast.While, ast.AsyncFor, ast.Try)):
            self._branches(node)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self._expressions(item.context_expr)
            self.visit_body(node.body)
        else:
            self._expressions(node)

    def _branches(self, node: ast.AST) -> None:
        for name in ("test", "iter"):
            inner = getattr(node, name, None)
            if inner is not None:
                self._expressions(inner)
        main = isinstance(node, ast.If) and "__name__" in ast.dump(node.test)
        plain = main or isinstance(node, ast.Try)
        if isinstance(node, (ast.For, ast.AsyncFor)):
            for target in ast.walk(node.target):
                if isinstance(target, ast.Name):
                    self.scopes[-1][target.id] = UNKNOWN
        self.depth += 0 if plain else 1
        for field in ("body", "orelse", "finalbody"):
            self.visit_body(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            self.visit_body(handler.body)
        self.depth -= 0 if plain else 1

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name
            if isinstance(node, ast.ImportFrom):
                self.imports[name] = f"{node.module or ''}.{alias.name}"
            else:
                self.imports[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        scope: dict[str, Any] = {}
        args = node.args
        positional = [*args.posonlyargs, *args.args]
        for arg in [*positional, *args.kwonlyargs]:
            scope[arg.arg] = UNKNOWN
        for arg, default in zip(reversed(positional), reversed(args.defaults), strict=False):
            scope[arg.arg] = self.value(default)
        for arg, default_or_none in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            if default_or_none is not None:
                scope[arg.arg] = self.value(default_or_none)
        for extra in (args.vararg, args.kwarg):
            if extra is not None:
                scope[extra.arg] = UNKNOWN
        held, self.depth = self.depth, 0
        self.scopes.append(scope)
        self.visit_body(node.body)
        self.scopes.pop()
        self.depth = held

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if self.depth and any(target.id in scope for scope in self.scopes):
                return
            self.scopes[-1][target.id] = UNKNOWN if self.depth else self.value(value)
        elif isinstance(target, ast.Subscript):
            owner = dotted(target.value)
            key = self.value(target.slice)
            item = self.value(value)
            if owner == "os.environ" and isinstance(key, str) and not self.depth:
                text = item if isinstance(item, str) else HOLE
                self.env[key] = Text.on(text, self.line(target)) if text else Text("", [])
            elif isinstance(target.value, ast.Name) and isinstance(key, str):
                known = self._lookup(target.value.id)
                if isinstance(known, Map) and not self.depth:
                    known.put(key, item, self.line(target))
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            for index, item_target in enumerate(target.elts):
                if index < len(values) and len(values) == len(target.elts):
                    self._assign(item_target, values[index])
                elif isinstance(item_target, ast.Name):
                    self.scopes[-1][item_target.id] = UNKNOWN

    def _augment(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            return
        known, new = self._lookup(node.target.id), self.value(node.value)
        if isinstance(known, Items) and isinstance(new, Items) and not self.depth:
            known.items.extend(new.items)
        elif not isinstance(known, (Items, Map)):
            self.scopes[-1][node.target.id] = UNKNOWN

    # ---- expressions ----
    def _expressions(self, node: ast.AST) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and id(inner) not in self.done:
                self.done.add(id(inner))
                self._call(inner)
            elif isinstance(inner, ast.List) and id(inner) not in self.done:
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
        engine_name = python_names().get(last) or self._aliased(name)
        if engine_name and self._is_engine(name, last, engine_name, node):
            self._engine(node, engine_name)
        elif last in _RUNNERS and node.args:
            self._runner(node)
        elif last in _INSTALLERS:
            self._install(node)

    def _install(self, node: ast.Call) -> None:
        """Pins of an image that is built in code: `.pip_install("engine==1.2.3")`."""
        reader = self.context.reader()
        for arg in node.args:
            word = self.value(arg)
            if isinstance(word, str):
                install = [Text.on(part, self.line(arg)) for part in ("pip", "install", word)]
                reader.command(Command(install, {}), Scope())
        self.context.pins.extend(reader.pins)

    def _aliased(self, name: str) -> str | None:
        target = self.imports.get(name.split(".")[0], "")
        return python_names().get(target.rsplit(".", 1)[-1]) if "." not in name else None

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

    def _mutate(self, node: ast.Call, method: str) -> None:
        assert isinstance(node.func, ast.Attribute)
        if self.depth or not isinstance(node.func.value, ast.Name):
            if dotted(node.func.value) == "os.environ" and method in ("update", "setdefault"):
                self._environ(node, method)
            return
        known = self._lookup(node.func.value.id)
        if isinstance(known, Items) and node.args:
            item = self.value(node.args[0])
            if method == "append":
                known.items.append((item, self.line(node.args[0])))
            elif isinstance(item, Items):
                known.items.extend(item.items)
        elif isinstance(known, Map) and method == "update":
            for arg in node.args:
                inner = self.value(arg)
                if isinstance(inner, Map):
                    known.update(inner)
            self._keywords(node, known)

    def _environ(self, node: ast.Call, method: str) -> None:
        if method == "setdefault" and len(node.args) == 2:
            key, item = self.value(node.args[0]), self.value(node.args[1])
            if isinstance(key, str) and key not in self.env:
                self.env[key] = Text.on(as_string(item), self.line(node))
        for arg in node.args if method == "update" else []:
            inner = self.value(arg)
            if isinstance(inner, Map):
                for key, (item, line) in inner.items.items():
                    self.env[key] = Text.on(as_string(item), line)

    def _list(self, node: ast.List) -> None:
        held = self._sequence(node)
        if not any(isinstance(item, str) and says_engine(item) for item, _ in held.items):
            return
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
        if isinstance(value, str) and len(node.args) > 1 and says_engine(value):
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
            start, end = self._span(first)
            raw = self.text.cut(start, end)
            text = (
                align(value, raw.s, raw.lines)
                if isinstance(first, (ast.Constant, ast.JoinedStr))
                else Text.on(value, self.line(first))
            )

            reader = self.context.reader()
            self.drafts.extend(reader.script(text, inherit({**self.env, **env}), depth=1))
            self.context.pins.extend(reader.pins)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        offsets = [0]
        for index, char in enumerate(self.text.s):
            if char == "\n":
                offsets.append(index + 1)
        begin = offsets[getattr(node, "lineno", 1) - 1]
        end_row = (getattr(node, "end_lineno", None) or 1) - 1
        end = offsets[end_row + 1] if end_row + 1 < len(offsets) else len(self.text.s)
        return begin, end
