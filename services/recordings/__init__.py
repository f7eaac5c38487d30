"""Recordings: what was asked of a stack and what came of it, as one file that can be replayed."""
