"""Presentation: text, Markdown, JSON and the machine formats."""
