"""Commands that explain, and what all commands have of help: examples, completion of names."""
