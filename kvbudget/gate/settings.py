"""One engine's settings, collected from words, maps and config files in order of precedence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.gate import values
from kvbudget.gate.source import HOLE, Text
from kvbudget.gate.values import BadValue

if TYPE_CHECKING:
    from kvbudget.gate.knowledge import Engine, Option


@dataclass(frozen=True)
class Setting:
    """A value in force, and where it stands."""

    name: str
    value: Any
    line: int
    spelled: str
    file: str | None = None


@dataclass(frozen=True)
class Problem:
    """A value that the engine refuses, or one that is not known."""

    name: str
    line: int
    spelled: str
    text: str
    file: str | None = None


@dataclass
class Settings:
    """Everything the arguments of one process say."""

    engine: Engine
    values: dict[str, Setting] = field(default_factory=dict)
    unresolved: dict[str, Problem] = field(default_factory=dict)
    bad: list[Problem] = field(default_factory=list)
    twice: list[tuple[Setting, Setting]] = field(default_factory=list)
    ambiguous: list[Problem] = field(default_factory=list)
    positional: list[Text] = field(default_factory=list)
    file: str | None = None
    layer: int = 0
    _seen: dict[str, int] = field(default_factory=dict)

    def put(self, option: Option, value: Any, line: int, spelled: str) -> None:  # noqa: ANN401
        """The last writer wins; two different values in one layer are remembered (GATE034)."""
        old = self.values.get(option.name)
        if old and self._seen.get(option.name) == self.layer and old.value != value:
            self.twice.append((old, Setting(option.name, value, line, spelled, self.file)))
        self._seen[option.name] = self.layer
        self.values[option.name] = Setting(option.name, value, line, spelled, self.file)
        self.unresolved.pop(option.name, None)
        self.bad = [bad for bad in self.bad if bad.name != option.name]

    def unknown(self, option: Option, line: int, spelled: str, text: str = "") -> None:
        """A value without a static meaning replaces what stood before."""
        self.values.pop(option.name, None)
        self.unresolved[option.name] = Problem(option.name, line, spelled, text, self.file)

    def refuse(self, option: Option, line: int, spelled: str, text: str) -> None:
        """A value the engine cannot parse."""
        self.values.pop(option.name, None)
        self.unresolved.pop(option.name, None)
        self.bad.append(Problem(option.name, line, spelled, text, self.file))

    def put_object(self, option: Option, value: object, line: int, spelled: str) -> None:
        """A typed value of YAML, JSON or Python."""
        if value is None:
            return
        if values.has_hole(value):
            self.unknown(option, line, spelled)
            return
        try:
            self.put(option, values.typed(option.kind, value), line, spelled)
        except BadValue as exc:
            self.refuse(option, line, spelled, str(exc))

    def get(self, name: str) -> Any:  # noqa: ANN401
        """Value of a field, None if unset, unresolved or refused."""
        found = self.values.get(name)
        return found.value if found else None

    # ---- words -------------------------------------------------------------------------------
    def find(self, flag: str) -> tuple[Option | None, bool, list[str]]:
        """Option of a spelled flag, whether it is negated, and the candidates if ambiguous."""
        engine = self.engine
        key = flag
        if engine.underscores and flag.startswith("--"):
            key = "--" + flag[2:].replace("_", "-")
        option = engine.spelled.get(key)
        if option:
            return option, False, []
        if engine.negatable and key.startswith("--no-"):
            positive = engine.spelled.get("--" + key[5:])
            if positive and positive.kind == "bool":
                return positive, True, []
        if key.startswith("--") and len(key) > 4:
            near = [name for name in engine.long if name.startswith(key)]
            targets = {engine.spelled[name].name for name in near}
            if len(targets) == 1:
                return engine.spelled[near[0]], False, []
            if len(targets) > 1:
                return None, False, near
        return None, False, []

    def words(self, words: list[Text]) -> None:
        """Read a command line behind the program words."""
        index = 0
        while index < len(words):
            index = self._word(words, index)

    def _word(self, words: list[Text], index: int) -> int:
        word = words[index]
        text = word.s
        following = words[index + 1] if index + 1 < len(words) else None
        if not text.startswith("-") or text in ("-", "--") or _negative_number(text):
            if text not in ("-", "--"):
                self.positional.append(word)
            return index + 1
        if HOLE in text.split("=", 1)[0]:
            return index + 1
        flag, has_value, _ = text.partition("=")
        value: Text | None = word.cut(len(flag) + 1) if has_value else None
        if not flag.startswith("--"):
            return self._short(word, flag, value, following, index)
        head, dot, path = flag.partition(".")
        if dot:
            return self._dotted(head, path, word, value, following, index)
        option, negated, near = self.find(flag)
        if option is None:
            if near:
                self.ambiguous.append(Problem(flag, word.line, flag, ", ".join(near), self.file))
            takes = value is None and following is not None and not _is_flag(following.s)
            return index + (2 if takes else 1)
        return self._take(option, negated, flag, word, value, words, index)

    def _short(
        self, word: Text, flag: str, value: Text | None, following: Text | None, index: int
    ) -> int:
        option = self.engine.spelled.get(flag)
        if option is None and flag[:2] == "-O" and flag[2:].isdigit():
            self.put(self.engine.spelled["-O"], int(flag[2:]), word.line, flag)
            return index + 1
        head, dot, path = flag.partition(".")
        if option is None and dot and head in self.engine.spelled:
            return self._dotted(head, path, word, value, following, index)
        if option is None:
            takes = value is None and following is not None and not _is_flag(following.s)
            return index + (2 if takes else 1)
        used = 1
        if value is None and following is not None:
            value, used = following, 2
        if value is not None:
            self._store(option, flag, word.line, value)
        return index + used

    def _dotted(
        self,
        head: str,
        path: str,
        word: Text,
        value: Text | None,
        following: Text | None,
        index: int,
    ) -> int:
        option, _, _ = self.find(head)
        used = 1
        if value is None and following is not None and not _is_flag(following.s):
            value, used = following, 2
        if option is None:
            return index + used
        if value is not None and not value.known:
            self.unknown(option, word.line, head)
            return index + used
        leaf = True if value is None else values.dotted_value(value.s)
        old = self.values.get(option.name)
        tree: dict[str, Any] = _copy(old.value) if old and isinstance(old.value, dict) else {}
        at = tree
        steps = path.split(".")
        for step in steps[:-1]:
            inner = at.get(step)
            if not isinstance(inner, dict):
                inner = at[step] = {}
            at = inner
        if steps[-1].endswith("+"):
            at.setdefault(steps[-1][:-1], []).append(leaf)
        else:
            at[steps[-1]] = leaf
        line = old.line if old else word.line
        self.values[option.name] = Setting(option.name, tree, line, head, self.file)
        return index + used

    def _take(
        self,
        option: Option,
        negated: bool,
        flag: str,
        word: Text,
        value: Text | None,
        words: list[Text],
        index: int,
    ) -> int:
        line = word.line
        following = words[index + 1] if index + 1 < len(words) else None
        if option.kind == "bool":
            if value is not None:
                self._store(option, flag, line, value)
                return index + 1
            if following is not None and following.s.lower() in ("true", "false") and not negated:
                self._store(option, flag, line, following)
                return index + 2
            self.put(option, not negated, line, flag)
            return index + 1
        if option.kind in ("int_list", "str_list"):
            items = [value] if value is not None else []
            index += 1
            if value is None:
                while index < len(words) and not _is_flag(words[index].s):
                    items.append(words[index])
                    index += 1
            self._store_list(option, flag, line, items)
            return index
        if value is None:
            if following is None or (_is_flag(following.s) and not _negative_number(following.s)):
                return index + 1
            value = following
            index += 1
        self._store(option, flag, line, value)
        return index + 1

    def _store(self, option: Option, flag: str, line: int, value: Text) -> None:
        if not value.known:
            self.unknown(option, line, flag, value.s)
            return
        if value.s == "":
            return
        if value.s in ("None", "null") and option.kind != "str":
            return
        if option.kind in ("int_list", "str_list"):
            self._store_list(option, flag, line, [value])
            return
        try:
            self.put(option, values.parse(option.kind, value.s), line, flag)
        except BadValue as exc:
            self.refuse(option, line, flag, str(exc))

    def _store_list(self, option: Option, flag: str, line: int, items: list[Text]) -> None:
        if any(not item.known for item in items):
            self.unknown(option, line, flag)
            return
        raw = " ".join(item.s for item in items)
        try:
            self.put(option, values.typed(option.kind, raw), line, flag)
        except BadValue as exc:
            self.refuse(option, line, flag, str(exc))


def _copy(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return list(value) if isinstance(value, list) else value


def _negative_number(text: str) -> bool:
    return text[:1] == "-" and text[1:].replace(".", "", 1).isdigit()


def _is_flag(text: str) -> bool:
    return text.startswith("-") and len(text) > 1 and not _negative_number(text)
