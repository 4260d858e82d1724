"""The command line: each command knows its arguments; its worker is imported when it runs."""
