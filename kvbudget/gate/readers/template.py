"""Un-rendered templates (Helm, Jinja): what can be resolved is, the rest is a hole."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kvbudget.gate.nodes import Malformed, documents
from kvbudget.gate.source import HOLE, Text

if TYPE_CHECKING:
    from kvbudget.gate.context import Context

_ACTION = re.compile(
    r"\{\{-?\s*(/\*.*?\*/|(?:\"(?:[^\"\\]|\\.)*\"|`[^`]*`|[^\"`}]|\}(?!\}))*?)\s*-?\}\}|\{%-?.*?-?%\}",
    re.S,
)
_TOKEN = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|`([^`]*)`|(\()|(\))|(\|)|(:?=)|([^\s()|\"`]+)")
_OPENS = ("if", "range", "with", "define", "block")
_OBJECT = re.compile(
    r"^\s*(kind|containers|image|apiVersion|spec)\s*:|vllm serve|launch_server|entrypoints", re.M
)
MISSING = object()
MAX_INCLUDE = 12


class Chart:
    """values.yaml, Chart.yaml and the named templates around a file."""

    def __init__(self, context: Context) -> None:
        self.values: Any = MISSING
        self.version: str | None = None
        self.defines: dict[str, Text] = {}
        root = chart_root(context)
        files = [found.path for found in context.tree.files]
        if root is None:
            beside = PurePosixPath(context.path).parent
            helpers = [name for name in files if PurePosixPath(name).parent == beside]
            self._helpers(context, [name for name in helpers if name.endswith(".tpl")])
            return
        prefix = f"{root}/" if root else ""
        if context.tree.read(f"{prefix}values.yaml") is not None:
            self.values = _yaml(context, f"{prefix}values.yaml") or {}
        chart = _yaml(context, f"{prefix}Chart.yaml") or {}
        if isinstance(chart, dict):
            self.version = str(chart.get("appVersion")) if chart.get("appVersion") else None
        names = [name for name in files if name.startswith(f"{prefix}templates/")]
        self._helpers(context, [*names, f"{prefix}templates/_helpers.tpl"])

    def _helpers(self, context: Context, names: list[str]) -> None:
        for name in dict.fromkeys(names):
            text = context.tree.read(name)
            if text is not None and "define" in text.s:
                self._define(text)

    def _define(self, text: Text) -> None:
        spans = list(_ACTION.finditer(text.s))
        for index, match in enumerate(spans):
            head = re.match(r"define\s+\"([^\"]+)\"", match.group(1) or "")
            if not head:
                continue
            depth = 1
            for later in spans[index + 1 :]:
                word = (later.group(1) or "").split(" ", 1)[0]
                depth += word in _OPENS
                depth -= word == "end"
                if depth == 0:
                    self.defines[head.group(1)] = text.cut(match.end(), later.start())
                    break


def chart_root(context: Context) -> str | None:
    """Folder with Chart.yaml above a template; None if there is none."""
    parts = PurePosixPath(context.path).parts[:-1]
    for size in range(len(parts), -1, -1):
        folder = "/".join(parts[:size])
        prefix = f"{folder}/" if folder else ""
        if context.tree.read(f"{prefix}Chart.yaml") is not None:
            return folder
    if "templates" in parts:
        return "/".join(parts[: parts.index("templates")])
    return None


def in_chart(context: Context) -> bool:
    """True for a file under a chart's templates/."""
    return "templates" in PurePosixPath(context.path).parts and (
        "{{" in context.text.s
        and re.search(r"\.Values|\.Release|include\s", context.text.s) is not None
    )


def _yaml(context: Context, path: str) -> Any:  # noqa: ANN401 - YAML
    text = context.tree.read(path)
    if text is None:
        return None
    try:
        docs = documents(text)
        return docs[0].value() if docs else None
    except Malformed:
        return None


def read(context: Context) -> None:
    """Resolve, then read as YAML; where that fails, look at the words line by line."""
    from kvbudget.gate.readers import manifests

    chart = Chart(context)
    rendered = Renderer(chart).render(context.text)
    try:
        docs = documents(rendered)
    except Malformed:
        loose(context, rendered)
        return
    manifests.read_documents(context, docs)
    if not context.drafts and any("\n" in d.s for d in docs if d.is_scalar):
        loose(context, rendered)


def loose(context: Context, text: Text) -> None:
    """A template that is no YAML even so: documents are tried one by one."""
    from kvbudget.gate.readers import manifests

    rows = text.split_lines()
    chunk: list[Text] = []
    for row in [*rows, Text.on("---", 0)]:
        if row.s.strip() == "---":
            if chunk:
                try:
                    manifests.read_documents(context, documents(Text.join(chunk, "\n")))
                except Malformed:
                    _repair(context, chunk)
            chunk = []
        else:
            chunk.append(row)


def _repair(context: Context, rows: list[Text]) -> None:
    """Leave out lines that keep the rest from being YAML (at most a few)."""
    from kvbudget.gate.readers import manifests

    kept = list(rows)
    for _ in range(12):
        try:
            docs = documents(Text.join(kept, "\n"))
        except Malformed as exc:
            bad = [row for row in kept if row.line == exc.line] or kept[-1:]
            if not bad or len(kept) < 2:
                return
            kept = [row for row in kept if row not in bad]
            continue
        manifests.read_documents(context, docs)
        return


class Renderer:
    """Evaluates the actions of a template as far as its values allow."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.variables: dict[str, Any] = {}
        self.dots: list[Any] = []
        self.depth = 0

    def render(self, text: Text) -> Text:
        """The text with its actions resolved."""
        spans = list(_ACTION.finditer(text.s))
        return self._span(text, spans, 0, len(spans), 0, len(text.s))

    def _span(
        self, text: Text, spans: list[re.Match[str]], first: int, last: int, start: int, end: int
    ) -> Text:
        parts: list[Text] = []
        at = start
        index = first
        while index < last:
            match = spans[index]
            parts.append(text.cut(at, match.start()))
            body = (match.group(1) or "").strip()
            word = body.split(None, 1)[0] if body else ""
            line = text.lines[match.start()]
            at = match.end()
            if word in _OPENS:
                close, branches = self._block(spans, index, last)
                parts.append(self._branch(text, spans, word, body, index, close, branches))
                at = spans[close].end() if close < last else end
                index = close + 1
                continue
            if match.group().startswith("{%"):
                index += 1
                continue
            value = self._action(body)
            if value and not (value == HOLE and _alone(text.s, match)):
                parts.append(Text.on(value, line))
            index += 1
        parts.append(text.cut(at, end))
        return Text.join(parts)

    def _block(self, spans: list[re.Match[str]], index: int, last: int) -> tuple[int, list[int]]:
        depth = 1
        branches: list[int] = []
        for at in range(index + 1, last):
            word = (spans[at].group(1) or "").split(None, 1)[:1]
            word_text = word[0] if word else ""
            if word_text in _OPENS:
                depth += 1
            elif word_text == "end":
                depth -= 1
                if depth == 0:
                    return at, branches
            elif word_text == "else" and depth == 1:
                branches.append(at)
        return last, branches

    def _branch(
        self,
        text: Text,
        spans: list[re.Match[str]],
        word: str,
        body: str,
        index: int,
        close: int,
        branches: list[int],
    ) -> Text:
        if word == "define":
            return Text("", [])
        edges = [index, *branches, close]
        end_at = spans[close].start() if close < len(spans) else len(text.s)
        for number in range(len(edges) - 1):
            head, tail = edges[number], edges[number + 1]
            start = spans[head].end()
            stop = spans[tail].start() if tail < len(spans) else end_at
            condition = body[len(word) :].strip()
            if number:
                said = (spans[head].group(1) or "").split(None, 1)
                condition = said[1].strip() if len(said) > 1 else ""
                if condition.startswith("if "):
                    condition = condition[3:]
                elif not condition:
                    return self._span(text, spans, head + 1, tail, start, stop)
            value = self._value(condition)
            known = value is not MISSING and value is not None and HOLE not in str(value)
            if word == "range" and number == 0:
                return self._range(text, spans, value, condition, head, tail, start, stop)
            if value is MISSING or (isinstance(value, str) and HOLE in value):
                if _OBJECT.search(text.s[start:stop]):
                    return self._with(
                        text, spans, head, tail, start, stop, MISSING if word == "with" else None
                    )
                return Text("", [])
            if (known and _truth(value)) or (value is not None and _truth(value)):
                dot = value if word == "with" else None
                return self._with(text, spans, head, tail, start, stop, dot)
        return Text("", [])

    def _with(
        self,
        text: Text,
        spans: list[re.Match[str]],
        head: int,
        tail: int,
        start: int,
        stop: int,
        dot: Any,  # noqa: ANN401
    ) -> Text:
        if dot is None:
            return self._span(text, spans, head + 1, tail, start, stop)
        self.dots.append(dot)
        out = self._span(text, spans, head + 1, tail, start, stop)
        self.dots.pop()
        return out

    def _range(
        self,
        text: Text,
        spans: list[re.Match[str]],
        value: Any,  # noqa: ANN401 - template value
        condition: str,
        head: int,
        tail: int,
        start: int,
        stop: int,
    ) -> Text:
        names = re.match(r"\$(\w+)\s*(?:,\s*\$(\w+))?\s*:=\s*(.*)", condition, re.S)
        if names:
            value = self._value(names.group(3))
        if value is MISSING or not isinstance(value, (list, dict)) or len(value) > 200:
            if value is MISSING and _OBJECT.search(text.s[start:stop]):
                return self._with(text, spans, head, tail, start, stop, MISSING)
            return Text("", [])
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        out: list[Text] = []
        for key, item in pairs:
            if names and names.group(2):
                self.variables[names.group(1)], self.variables[names.group(2)] = key, item
            elif names:
                self.variables[names.group(1)] = item
            out.append(
                self._with(text, spans, head, tail, start, stop, item if item is not None else "")
            )
        return Text.join(out)

    # ---- expressions ----
    def _action(self, body: str) -> str:
        if not body or body.startswith("/*") or body in ("end", "else"):
            return ""
        assigned = re.match(r"\$(\w+)\s*:?=\s*(.*)", body, re.S)
        if assigned:
            self.variables[assigned.group(1)] = self._value(assigned.group(2))
            return ""
        value = self._value(body)
        if value is MISSING or value is None:  # a key that values.yaml leaves to the user
            return HOLE
        return _show(value)

    def _value(self, expr: str) -> Any:  # noqa: ANN401 - template value
        tokens = list(_TOKEN.finditer(expr))
        try:
            value, rest = self._pipeline(tokens, 0)
        except (IndexError, RecursionError):
            return MISSING
        return value if rest >= len(tokens) else MISSING

    def _pipeline(self, tokens: list[re.Match[str]], at: int) -> tuple[Any, int]:
        value, at = self._command(tokens, at, [])
        while at < len(tokens) and tokens[at].group(5):
            value, at = self._command(tokens, at + 1, [value])
        return value, at

    def _command(self, tokens: list[re.Match[str]], at: int, piped: list[Any]) -> tuple[Any, int]:
        terms: list[Any] = []
        name: str | None = None
        first = True
        while at < len(tokens) and not tokens[at].group(4) and not tokens[at].group(5):
            token = tokens[at]
            if token.group(1) is not None:
                terms.append(token.group(1).replace('\\"', '"'))
            elif token.group(2) is not None:
                terms.append(token.group(2))
            elif token.group(3):
                value, at = self._pipeline(tokens, at + 1)
                terms.append(value)
                if at >= len(tokens) or not tokens[at].group(4):
                    raise IndexError
            elif token.group(7):
                word = token.group(7)
                if (
                    first
                    and re.fullmatch(r"[A-Za-z]\w*", word)
                    and word not in ("true", "false", "nil")
                ):
                    name = word
                else:
                    terms.append(self._term(word))
            else:
                raise IndexError
            first = False
            at += 1
        if name is not None:
            return self._function(name, [*terms, *piped]), at
        return (terms[0] if terms else (piped[0] if piped else MISSING)), at

    def _term(self, word: str) -> Any:  # noqa: ANN401 - template value
        if word in ("true", "false"):
            return word == "true"
        if word == "nil":
            return None
        if re.fullmatch(r"-?\d+", word):
            return int(word)
        if re.fullmatch(r"-?\d*\.\d+", word):
            return float(word)
        if word == ".":
            return self.dots[-1] if self.dots else "."
        if word.startswith("$."):
            return self._path(None, word[2:])
        if word.startswith("$"):
            name, _, rest = word[1:].partition(".")
            if not name:
                return "."
            base = self.variables.get(name, MISSING)
            return _descend(base, rest.split(".")) if rest else base
        if word.startswith("."):
            inner = self.dots[-1] if self.dots else None
            return self._path(inner, word[1:])
        return MISSING

    def _path(self, dot: Any, path: str) -> Any:  # noqa: ANN401 - template value
        parts = path.split(".")
        if parts[0] == "Values":
            return _descend(self.chart.values, parts[1:])
        if parts[0] == "Chart" and parts[1:] == ["AppVersion"]:
            return self.chart.version or MISSING
        if parts[0] in ("Release", "Chart", "Capabilities", "Files", "Template"):
            return MISSING
        if dot is not None and dot is not MISSING:
            return _descend(dot, parts)
        return MISSING

    def _function(self, name: str, args: list[Any]) -> Any:  # noqa: ANN401 - template value
        if name == "default":
            if len(args) < 2:
                return args[0] if args else MISSING
            value = args[-1]
            if value is MISSING:
                return args[0]
            return value if _truth(value) else args[0]
        if name == "coalesce":
            return next((a for a in args if a is not MISSING and _truth(a)), MISSING)
        if name == "required":
            value = args[-1] if args else MISSING
            return MISSING if value is None or value == "" else value
        if name in ("and", "or", "not", "eq", "ne", "gt", "ge", "lt", "le", "empty", "hasKey"):
            return _logic(name, args)
        if name in ("include", "template"):
            return self._include(args)
        if name in ("tpl",):
            value = args[0] if args else MISSING
            return self.render(Text.on(value, 0)).s if isinstance(value, str) else value
        if name in ("quote", "squote") and args and (args[-1] is None or args[-1] is MISSING):
            return f'"{HOLE}"'
        if any(arg is MISSING for arg in args):
            return MISSING
        return _plain_function(name, args)

    def _include(self, args: list[Any]) -> Any:  # noqa: ANN401 - template value
        if not args or not isinstance(args[0], str) or self.depth >= MAX_INCLUDE:
            return MISSING
        body = self.chart.defines.get(args[0])
        if body is None:
            return MISSING
        self.depth += 1
        held = self.dots
        self.dots = [args[1]] if len(args) > 1 and isinstance(args[1], (dict, list)) else []
        out = self.render(body).s
        self.dots = held
        self.depth -= 1
        return (
            re.sub(r"\n[ \t]*(?=\n)", "", out).strip("\n").strip()
            if "\n" not in out.strip()
            else _squeeze(out)
        )


def _alone(text: str, match: re.Match[str]) -> bool:
    """True for an action that has a line of its own: unknown words there add nothing."""
    before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    end = text.find("\n", match.end())
    after = text[match.end() : end if end >= 0 else len(text)]
    return not before.strip() and not after.strip()


def _squeeze(text: str) -> str:
    rows = [row for row in text.split("\n") if row.strip()]
    return "\n".join(rows)


def _descend(value: Any, parts: list[str]) -> Any:  # noqa: ANN401
    for part in parts:
        if value is MISSING:
            return MISSING
        if isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def _truth(value: object) -> bool:
    return bool(value) and value is not MISSING


def _logic(name: str, args: list[Any]) -> Any:  # noqa: ANN401
    if name == "and":
        if any(a is not MISSING and not _truth(a) for a in args):
            return False
        return MISSING if any(a is MISSING for a in args) else (args[-1] if args else True)
    if name == "or":
        good = next((a for a in args if a is not MISSING and _truth(a)), None)
        if good is not None:
            return good
        return MISSING if any(a is MISSING for a in args) else False
    if any(a is MISSING for a in args) or not args:
        return MISSING
    if name == "not":
        return not _truth(args[0])
    if name == "empty":
        return not _truth(args[0])
    if name == "hasKey":
        return isinstance(args[0], dict) and args[1] in args[0]
    if name == "eq":
        return any(args[0] == other for other in args[1:])
    if name == "ne":
        return args[0] != args[1]
    try:
        return {
            "gt": args[0] > args[1],
            "ge": args[0] >= args[1],
            "lt": args[0] < args[1],
            "le": args[0] <= args[1],
        }[name]
    except TypeError:
        return MISSING


def _plain_function(name: str, args: list[Any]) -> Any:  # noqa: ANN401
    import json

    value = args[-1] if args else MISSING
    if name in ("quote", "squote"):
        return json.dumps(_show(value)) if name == "quote" else f"'{_show(value)}'"
    if name in ("toString", "trim", "lower", "upper"):
        text = _show(value)
        return {"trim": text.strip(), "lower": text.lower(), "upper": text.upper()}.get(name, text)
    if name in ("int", "int64"):
        try:
            return int(float(_show(value)))
        except (TypeError, ValueError):
            return MISSING
    if name == "float64":
        try:
            return float(_show(value))
        except (TypeError, ValueError):
            return MISSING
    if name in ("toYaml", "toJson", "toRawJson", "mustToJson", "mustToYaml"):
        # JSON is YAML in flow style: it keeps the one line it is used on
        return json.dumps(value)
    if name in ("indent", "nindent"):
        return _indented(name, args)
    if name == "printf":
        text = str(args[0])
        for arg in args[1:]:
            shown = _show(arg).replace("\\", r"\\")
            text = re.sub(r"%[-+#0-9.]*[a-zA-Z]", shown, text, count=1)
        return text
    if name == "join" and isinstance(value, list):
        return str(args[0]).join(_show(item) for item in value)
    if name in ("mul", "add", "sub", "div"):
        try:
            numbers = [float(a) for a in args]
        except (TypeError, ValueError):
            return MISSING
        out = numbers[0]
        for number in numbers[1:]:
            if name == "div" and number == 0:
                return MISSING
            out = {"mul": out * number, "add": out + number, "sub": out - number}.get(
                name, out // (number or 1)
            )
        return int(out) if out == int(out) else out
    if name == "ternary" and len(args) == 3:
        return args[0] if _truth(args[2]) else args[1]
    if name == "list":
        return list(args)
    if name == "index" and len(args) >= 2:
        found: Any = args[0]
        for key in args[1:]:
            if isinstance(found, dict):
                found = found.get(key)
            elif isinstance(found, list) and isinstance(key, int) and key < len(found):
                found = found[key]
            else:
                return None
        return found
    if name in ("trunc", "trimSuffix", "trimPrefix", "replace"):
        if name == "replace" and len(args) == 3:
            return _show(args[2]).replace(str(args[0]), str(args[1]))
        return _show(value)
    return MISSING


def _indented(name: str, args: list[Any]) -> Any:  # noqa: ANN401
    text = _show(args[-1])
    if not text:
        return ""
    pad = " " * int(args[0]) if args and isinstance(args[0], int) else ""
    body = "\n".join(pad + row if row else row for row in text.split("\n"))
    return ("\n" if name == "nindent" else "") + body


def _show(value: object) -> str:
    if value is None:
        return ""
    if value is MISSING:
        return HOLE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value)
    return str(value)
