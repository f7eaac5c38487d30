"""Replay of a recording on a stack of real processes."""
