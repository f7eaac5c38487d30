"""Patches and server-side apply on plain objects, and who owns which field.

Reads and writes no store.
"""
