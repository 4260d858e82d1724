"""One module per family of file shapes; each turns a file into drafts of engine processes."""
