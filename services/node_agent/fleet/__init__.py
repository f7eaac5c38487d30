"""The emulated nodes, and their state that survives the process."""
