"""Drivers of installed engines: argv from data, lines read by the log patterns."""
