"""`matrixctl top`: the machine on one screen.

A snapshot is read over REST, drawn as text, and shown once or kept up to date on a full screen. It changes nothing.
"""
