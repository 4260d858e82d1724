"""From what a failing process printed to its cause, and to the one direction each knob has to go."""
