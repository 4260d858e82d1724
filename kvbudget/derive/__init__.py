"""From a model, a card, flags, a log or a profile to an engine's derivation."""
