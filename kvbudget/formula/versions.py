"""Release numbers and the ranges in which something holds (`">=0.9.2,<0.11"`).

A small part of PEP 440: releases, post releases, pre- and dev releases, and a trailing `.x`
("the last of that line"). Local labels (`+cu128`) are ignored.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache

from kvbudget.errors import InputError

Key = tuple[tuple[int, ...], int, int]

_VERSION = re.compile(
    r"v?(?P<release>\d{1,9}(?:\.\d{1,9}){0,9})(?P<any>\.[xX*])?"
    r"(?:[-._]?(?P<pre>a|b|c|rc|alpha|beta|preview)[-._]?(?P<pren>\d{0,9}))?"
    r"(?:[-._]?post[-._]?(?P<post>\d{0,9}))?(?:[-._]?dev[-._]?(?P<dev>\d{0,9}))?(?:\+.*)?\Z"
)
_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*\Z")
_TESTS = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq,
    "!=": operator.ne, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


@lru_cache(maxsize=512)
def version_key(text: str) -> Key:
    """Orderable key of a release number. Raises InputError for anything else."""
    match = _VERSION.match(text.strip())
    if match is None:
        raise InputError(
            f"not a release number: {text[:40]!r}", "write it as the engine does: 0.25.1"
        )
    parts = [int(part) for part in match["release"].split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    release = (*parts, 9999) if match["any"] else tuple(parts)
    if match["dev"] is not None and match["pre"] is None and match["post"] is None:
        return release, -2, int(match["dev"] or 0)
    if match["pre"] is not None:
        return release, -1, int(match["pren"] or 0)
    if match["post"] is not None:
        return release, 1, int(match["post"] or 0)
    return release, 0, 0


@lru_cache(maxsize=2048)
def holds(version: str, versions: str) -> bool:
    """True when `version` lies in the range `versions` (empty or `*`: always).

    A pre-release counts as its release where a bound names the release, as the code of
    0.21.0rc1 is the code of 0.21.0.
    """
    key = version_key(version)
    if key[1] < 0:
        key = (key[0], 0, 0)
    for clause in versions.split(","):
        if clause.strip() in ("", "*"):
            continue
        match = _CLAUSE.match(clause)
        if match is None:
            raise InputError(f"not a version range: {versions!r}", 'write ">=0.9.2,<0.11"')
        if not _TESTS[match.group(1)](key, version_key(match.group(2))):
            return False
    return True
