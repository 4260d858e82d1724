"""A profile pass: the terms of the memory budget measured one by one, with a GPU or without."""
