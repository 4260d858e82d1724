"""kvbudget: where the GPU memory of an LLM inference server goes, and why.

As a library: `from kvbudget import api`, one function per command.
"""

__version__ = "0.1.0"
