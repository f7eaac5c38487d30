"""`explain`, and the help that all commands share: examples, and completion of names."""
