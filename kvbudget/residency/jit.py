"""One switch between compiled and plain kernels; both run the same source, so the same integers.

Kernels are written over flat arrays. With numba they are compiled once and kept in a cache
directory; without it (or with KVBUDGET_PURE_PYTHON=1) the very same functions run over lists.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

from kvbudget.residency import mode

F = TypeVar("F", bound=Callable[..., Any])


def _numba() -> Any:  # noqa: ANN401 - an optional third-party module
    if os.environ.get("KVBUDGET_PURE_PYTHON") or mode.small():
        return None
    try:
        import numba
        import numpy  # noqa: F401 - numba's own requirement, checked together
    except ImportError:
        return None
    if not os.environ.get("NUMBA_CACHE_DIR") and not os.access(Path(__file__).parent, os.W_OK):
        for base in (os.environ.get("XDG_CACHE_HOME"), str(Path.home() / ".cache")):
            target = Path(base) / "kvbudget" / "numba" if base else None
            try:
                if target is not None:
                    target.mkdir(parents=True, exist_ok=True)
                    _cache_in(numba, target)
                    break
            except OSError:
                continue
        else:
            import tempfile

            _cache_in(numba, Path(tempfile.gettempdir()) / f"kvbudget-numba-{os.getuid()}")
    return numba


def _cache_in(numba: Any, folder: Path) -> None:  # noqa: ANN401
    numba.config.CACHE_DIR = str(folder)


_NUMBA = _numba()
COMPILED = _NUMBA is not None

unsigned: Callable[[Any], int] = int if _NUMBA is None else _NUMBA.uint64
"""A position that a compiled kernel need not test for counting from the end of an array.

It mixes with its own kind; together with a signed number the compiler would make it a float.
"""
signed: Callable[[Any], int] = int if _NUMBA is None else _NUMBA.int64


def kernel(function: F) -> F:
    """Compile `function` (cached on disk where one can write), or leave it as it is."""
    if _NUMBA is None:
        return function
    try:
        return cast("F", _NUMBA.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no writable cache directory at all
        return cast("F", _NUMBA.njit(nogil=True)(function))


def available() -> bool:
    """Whether compiled kernels can be had here, be it that this run is too small for them."""
    return not os.environ.get("KVBUDGET_PURE_PYTHON") and find_spec("numba") is not None


def zeros(count: int, kind: str = "i4") -> Any:  # noqa: ANN401 - ndarray or list
    """`count` zeros: a numpy array of `kind` for compiled kernels, a list for plain ones."""
    if _NUMBA is None:
        return [0] * count
    import numpy as np

    return np.zeros(count, dtype=kind)


def running_sum(values: Any) -> Any:  # noqa: ANN401 - ndarray or list
    """Sums of all values up to each: in place, a list stays as it is."""
    if _NUMBA is None:
        return list(itertools.accumulate(values))
    import numpy as np

    return np.cumsum(values, dtype=values.dtype, out=values)
