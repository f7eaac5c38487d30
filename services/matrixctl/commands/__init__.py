"""The commands, grouped by what they are for. Each imports what it needs when it is called, so `--help` is quick."""
