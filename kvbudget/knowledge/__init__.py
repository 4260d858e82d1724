"""The data folders: where they lie, how they are read, and the proof that they are right."""
