"""Statements of Python: what names, attributes, lists and dicts stand for once they have run."""

from __future__ import annotations

import ast
from typing import Any

from kvbudget.gate.readers.python_values import (
    UNKNOWN,
    Items,
    Map,
    Values,
    as_string,
    dotted,
)
from kvbudget.gate.source import HOLE, Text


class Names(Values):
    """Follows assignments; what happens under a condition leaves the earlier value in force."""

    def __init__(self, text: Text, rows: list[int]) -> None:
        super().__init__(text, rows)
        self.depth = 0

    def _expressions(self, node: ast.AST) -> None:
        """What a reader looks for in an expression, in the order of the statements."""
        raise NotImplementedError

    def visit_body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._function(node)
        elif isinstance(node, ast.ClassDef):
            self._class(node)
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

    def _class(self, node: ast.ClassDef) -> None:
        self.imports[node.name] = f".{node.name}"
        own: dict[str, Any] = {}
        self.scopes.append(own)
        self.owners.append(own)
        self.visit_body(node.body)
        self.owners.pop()
        self.scopes.pop()
        fields = Map()
        for name, value in own.items():
            self.scopes[-1][f"{node.name}.{name}"] = value
            fields.put(name, value, self.line(node))
        if not any(
            isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body
        ):
            self.classes[node.name] = fields

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
        holds = self._holds(node.test) if isinstance(node, ast.If) and not plain else None
        for field in ("body", "orelse", "finalbody"):
            certain = plain or (holds is not None and holds is (field == "body"))
            self.depth += 0 if certain else 1
            self.visit_body(getattr(node, field, []))
            self.depth -= 0 if certain else 1
        self.depth += 0 if plain else 1
        for handler in getattr(node, "handlers", []):
            self.visit_body(handler.body)
        self.depth -= 0 if plain else 1

    def _holds(self, test: ast.expr) -> bool | None:
        """Whether a condition is met as the file stands; None where that is not known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._holds(test.operand)
            return None if inner is None else not inner
        compared = isinstance(test, ast.Compare) and len(test.ops) == 1
        if isinstance(test, ast.Compare) and compared:
            left, right = self.value(test.left), self.value(test.comparators[0])
            if not _plain(left) or not _plain(right):
                return None
            if isinstance(test.ops[0], (ast.Eq, ast.Is)):
                return bool(left == right)
            return bool(left != right) if isinstance(test.ops[0], (ast.NotEq, ast.IsNot)) else None
        value = self.value(test) if isinstance(test, (ast.Name, ast.Attribute)) else UNKNOWN
        return bool(value) if _plain(value) else None

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
        self._returned(node)
        self.scopes.pop()
        self.depth = held

    def _returned(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """What a call without arguments gives, for a function that ends in its only `return`."""
        found = [part for part in ast.walk(node) if isinstance(part, ast.Return)]
        known = len(found) == 1 and found[0] is node.body[-1] and found[0].value is not None
        value = self.value(found[0].value) if known and found[0].value else UNKNOWN
        self.returns[node.name] = UNKNOWN if node.name in self.returns else value

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if self.depth and any(target.id in scope for scope in self.scopes):
                return
            self.scopes[-1][target.id] = UNKNOWN if self.depth else self.value(value)
        elif isinstance(target, ast.Attribute):
            self._own(target, value)
        elif isinstance(target, ast.Subscript):
            owner = self.origin(target.value)
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

    def _own(self, target: ast.Attribute, value: ast.expr) -> None:
        """`self.x = value`: known in the whole class unless it is set to something else too."""
        name = dotted(target)
        if not self.owners or not name.startswith("self.") or name.count(".") != 1:
            return
        own, item = self.owners[-1], self.value(value)
        if self.depth:
            own.setdefault(name, UNKNOWN)
        else:
            own[name] = item if own.get(name, item) == item else UNKNOWN

    def _augment(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            return
        name, known = node.target.id, self._lookup(node.target.id)
        new = self.value(node.value)
        if isinstance(known, str) and isinstance(node.op, ast.Add):
            if not self.depth:
                self.scopes[-1][name] = known + (new if isinstance(new, str) else f" {HOLE}")
        elif isinstance(known, Items) and isinstance(new, Items) and not self.depth:
            known.items.extend(new.items)
        elif isinstance(known, Map) and isinstance(new, Map) and not self.depth:
            known.update(new)
        elif not isinstance(known, (Items, Map)):
            self.scopes[-1][name] = UNKNOWN

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


def _plain(value: object) -> bool:
    """A value that is wholly known."""
    known = value is None or isinstance(value, (bool, int, float, str))
    return known and not (isinstance(value, str) and HOLE in value)
