"""kvbudget: where the GPU memory of an LLM inference server goes, and why."""

__version__ = "0.1.0"
