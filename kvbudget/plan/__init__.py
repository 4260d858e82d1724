"""Inverts a derivation: wanted context and concurrency -> flags."""
