"""The CI gate: files -> engine invocations -> rules -> findings."""
