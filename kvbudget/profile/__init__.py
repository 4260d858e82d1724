"""A real profile pass: the terms of the memory budget measured one by one, on a device or without."""
