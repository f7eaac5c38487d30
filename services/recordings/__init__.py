"""Recordings: the requests to a stack and the resulting changes, as one file that can be replayed."""
