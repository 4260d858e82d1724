"""The engines' arithmetic: the language of formulas/, its loader, and the derivation it yields."""
