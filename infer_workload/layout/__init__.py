"""Roles on dies, and what becomes of them after a loss or a drain.

It serves nothing.
"""
