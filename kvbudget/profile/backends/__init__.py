"""Devices a profile can run on; torch is imported in here only, at call time."""
