"""`matrixctl top`: the machine on one screen.

A snapshot is read over REST, drawn as text, and printed once or refreshed on a full screen. Read-only.
"""
