"""Commands about the stack as a whole: start, status, stop, clock, snapshots, and bug reports."""
