"""The functions of Helm templates, on plain values; MISSING stands for what is not known."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from kvbudget.gate.source import HOLE

MISSING = object()


def descend(value: Any, parts: list[str]) -> Any:  # noqa: ANN401
    """Value of nested keys; None where a key is absent, MISSING under what is not known."""
    for part in parts:
        if value is MISSING:
            return MISSING
        if isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def truth(value: object) -> bool:
    """What `if` makes of a value; what is not known is not true."""
    return bool(value) and value is not MISSING


def logic(name: str, args: list[Any]) -> Any:  # noqa: ANN401
    """`and`, `or`, comparisons: MISSING where the unknown could decide."""
    if name == "and":
        if any(a is not MISSING and not truth(a) for a in args):
            return False
        return MISSING if any(a is MISSING for a in args) else (args[-1] if args else True)
    if name == "or":
        good = next((a for a in args if a is not MISSING and truth(a)), None)
        if good is not None:
            return good
        return MISSING if any(a is MISSING for a in args) else False
    if any(a is MISSING for a in args) or not args:
        return MISSING
    if name == "not":
        return not truth(args[0])
    if name == "empty":
        return not truth(args[0])
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


def plain_function(name: str, args: list[Any]) -> Any:  # noqa: ANN401
    """A function on known values; MISSING for one that is not modelled."""
    value = args[-1] if args else MISSING
    if name in ("quote", "squote"):
        return json.dumps(show(value)) if name == "quote" else f"'{show(value)}'"
    if name in ("toString", "trim", "lower", "upper"):
        text = show(value)
        return {"trim": text.strip(), "lower": text.lower(), "upper": text.upper()}.get(name, text)
    if name in ("int", "int64"):
        try:
            return int(float(show(value)))
        except (TypeError, ValueError):
            return MISSING
    if name == "float64":
        try:
            return float(show(value))
        except (TypeError, ValueError):
            return MISSING
    if name in ("toYaml", "mustToYaml"):
        return (
            yaml.safe_dump(value, default_flow_style=False, sort_keys=False)
            .removesuffix("...\n")
            .rstrip()
        )
    if name in ("toJson", "toRawJson", "mustToJson"):
        return json.dumps(value)
    if name in ("indent", "nindent"):
        return _indented(name, args)
    if name == "printf":
        text = str(args[0])
        for arg in args[1:]:
            shown = show(arg).replace("\\", r"\\")
            text = re.sub(r"%[-+#0-9.]*[a-zA-Z]", shown, text, count=1)
        return text
    if name == "join" and isinstance(value, list):
        return str(args[0]).join(show(item) for item in value)
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
        return args[0] if truth(args[2]) else args[1]
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
    known = _collection(name, args)
    if known is not MISSING:
        return known
    if name in ("trunc", "trimSuffix", "trimPrefix", "replace"):
        if name == "replace" and len(args) == 3:
            return show(args[2]).replace(str(args[0]), str(args[1]))
        return show(value)
    return MISSING


_KINDS = {bool: "bool", str: "string", int: "int", float: "float64", list: "slice", dict: "map"}


def _collection(name: str, args: list[Any]) -> Any:  # noqa: ANN401
    """Functions on maps, lists and the kind of a value; MISSING for any other."""
    value = args[-1] if args else MISSING
    if name == "kindOf" and type(value) in _KINDS:
        return _KINDS[type(value)]
    if name == "len" and isinstance(value, (dict, list, str)):
        return len(value)
    if name == "add1" and isinstance(value, int):
        return value + 1
    if name == "keys" and isinstance(value, dict):
        return list(value)
    if name == "sortAlpha" and isinstance(value, list):
        return sorted(show(item) for item in value)
    if name == "append" and isinstance(args[0], list) and len(args) == 2:
        return [*args[0], args[1]]
    if name == "set" and isinstance(args[0], dict) and len(args) == 3:
        args[0][str(args[1])] = args[2]
        return args[0]
    if name in ("hasPrefix", "hasSuffix", "contains") and len(args) == 2:
        part, text = show(args[0]), show(args[1])
        at = {"hasPrefix": text.startswith, "hasSuffix": text.endswith, "contains": text.count}
        return bool(at[name](part))
    return MISSING


def _indented(name: str, args: list[Any]) -> Any:  # noqa: ANN401
    text = show(args[-1])
    if not text:
        return ""
    pad = " " * int(args[0]) if args and isinstance(args[0], int) else ""
    body = "\n".join(pad + row if row else row for row in text.split("\n"))
    return ("\n" if name == "nindent" else "") + body


def show(value: object) -> str:
    """A value as a template prints it."""
    if value is None:
        return ""
    if value is MISSING:
        return HOLE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value)
