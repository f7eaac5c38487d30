"""Snapshots: all that a stack knows at one moment, as one file.

It holds the database of each process and when it was taken, never a token or a key: those of the state folder into
which it is restored stay, and a new folder makes its own.
"""
