"""What can be started: one package for each process.

No package below imports it.
"""
