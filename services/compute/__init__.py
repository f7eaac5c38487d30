"""MatrixCompute as a process."""
