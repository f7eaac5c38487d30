"""MatrixResource as a process."""
