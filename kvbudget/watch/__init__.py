"""Watching a running server: samples over time, the alarms they raise, and nothing else."""
