"""The name of the file with a stack's machine, in its state folder and in a snapshot."""

MACHINE = "machine"
"""Without its extension."""
