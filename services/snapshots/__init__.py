"""Snapshots: the whole state of a stack at one moment, in one file.

A snapshot holds each process's database and the time it was taken, but no token or key: a restore keeps those of the
target state folder, and a new folder generates its own.
"""
