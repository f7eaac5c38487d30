"""MatrixLink as a process."""
