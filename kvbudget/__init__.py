"""kvbudget: where the GPU memory of an LLM inference server goes, and why.

As a library: `kvbudget.api`, one function per command; it is imported when it is first asked for.
"""

from __future__ import annotations

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "api":
        from importlib import import_module

        return import_module("kvbudget.api")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
