"""A recording replayed on a stack of real processes."""
