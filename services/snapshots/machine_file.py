"""What the file with a stack's machine is called, in its state folder and in a snapshot."""

MACHINE = "machine"
"""But for its ending."""
