"""What stands around a message: colour codes, stamps of other tools, the tag of the process."""

from __future__ import annotations

import re

_ANSI = re.compile(
    r"(?:\x1b|\\x1b|\\033|\\u001b|\^\[|←|#033|␛)\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)
_CARET_M = re.compile(r"\^M$")


def strip_colours(text: str) -> str:
    """Without terminal sequences, in any of the spellings in which pasted logs carry them."""
    if "[" in text or "\x1b" in text:
        text = _ANSI.sub("", text)
    return _CARET_M.sub("", text).rstrip("\r\n")


# Stamps that other tools put before a line, peeled one after the other from its start.
_STAMPS = [
    re.compile(pattern)
    for pattern in (
        r"\s*(?:>\s*)+",  # quoted in a ticket
        r"[\w.-]+(?:-\d+)?\s{1,40}\|\s?",  # docker compose
        r"\[pod/[^\]]+\]\s",  # kubectl logs --prefix
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d+(?:Z|[+-]\d\d:?\d\d)?\s(?:std(?:out|err) [FP]\s)?",
        r"\S{1,12}\.? {1,2}\d{1,2} \d\d:\d\d:\d\d \S+ [\w.@/-]+(?:\[\d+\])?:\s",  # journald
        r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [\w.-]+:\d+\]\s",  # klog
        r"##\[\w+\]",  # GitHub Actions
        r"\d{1,6}[:|]\s",  # line-number gutter
    )
]


def strip_stamps(text: str) -> str:
    """Without the stamps of collectors; used where a message continues on the next line."""
    for _ in range(6):
        for stamp in _STAMPS:
            match = stamp.match(text)
            if match and match.end() and match.end() < len(text):
                text = text[match.end() :]
                break
        else:
            return text
    return text


_AXES = r"(?:ATTN_[A-Z]+|MOE_[A-Z]+|PCP|DCP|DP|PP|TP|EP|CP)\d+"
_TAG = re.compile(
    rf"\[?(?<![\w-])\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?P<sgl>(?: [\w.]+)*)\]"
    rf"|\(Worker(?P<axes>(?:_{_AXES})+)(?: pid=\d+)?\)"
    r"|\((?P<named>[A-Za-z]\w*) rank=(?P<rank>\d+)(?: [^)]*)?\)"
    r"|\[rank(?P<bracket>\d+)\]:"
    r"|\((?P<proc>[A-Za-z]\w*) pid=(?P<pid>\d+)(?:, ip=(?P<ip>[0-9A-Fa-f.:]+))?\)"
    r"|(?<![\w-])rank=(?P<plain>\d+)(?=[\s,;)]|$)"
)
_AXIS = re.compile(rf"{_AXES}\Z")
_ANONYMOUS = re.compile(
    r"(?:EngineCore|APIServer|ApiServer|Worker|MainProcess|raylet)(?:_DP\d+|_\d+)?\Z"
)


def tags(text: str) -> list[tuple[int, str | None]]:
    """(end of the tag, rank it names or None) for every process tag in the line, in order."""
    found: list[tuple[int, str | None]] = []
    for match in _TAG.finditer(text):
        groups = match.groupdict()
        rank: str | None = None
        if groups["sgl"] is not None:
            words = [word for word in groups["sgl"].split() if _AXIS.match(word)]
            rank = " ".join(words) or None
        elif groups["axes"]:
            rank = " ".join(re.findall(_AXES, groups["axes"]))
        elif groups["rank"] is not None:
            rank = f"rank{groups['rank']}"
        elif groups["bracket"] is not None:
            rank = f"rank{groups['bracket']}"
        elif groups["plain"] is not None:
            rank = f"rank{groups['plain']}"
        elif groups["proc"] and not _ANONYMOUS.match(groups["proc"]):
            rank = f"pid={groups['pid']}" + (f"@{groups['ip']}" if groups["ip"] else "")
        found.append((match.end(), rank))
    return found


def rank_before(text: str, position: int) -> str | None:
    """The rank named by the last telling tag that ends before `position`."""
    rank = None
    for end, named in tags(text):
        if end > position:
            break
        if named is not None:
            rank = named
    return rank


_HEAD = re.compile(
    r"\s*(?:"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL|TRACE)\b"
    r"|\(\w+(?: rank=\d+)?(?: pid=[\d.]+)?[^)]*\)"
    r"|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d"
    r"|\[rank\d+\]"
    r"|\[\d+/\d+"
    r"|\[\s*\d+\.\d+\]"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d"
    r"|(?:[\w./-]+:\d+ |\S+:\d+:\d+ \[\d+\] (?:\S+ )?)?NCCL (?:WARN|INFO)\b"
    r"|File [\"~/]"
    r"|Traceback \(most recent"
    r"|\w+(?:\.\w+)*(?:Error|Exception|Interrupt)\b:"
    r"|\w+(?: +\w+)*:\s+\d+%\|"
    r"|\$ |# |>>> |\{"
    r")"
)


def starts_record(text: str) -> bool:
    """True when the line opens a record of its own (a level, a stamp, a tag, a frame)."""
    return _HEAD.match(text) is not None
