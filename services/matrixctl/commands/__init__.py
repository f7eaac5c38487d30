"""The commands, grouped by purpose. Each imports what it needs when called, so that `--help` is quick."""
