"""Patches and server-side apply on plain objects, and field ownership.

It never accesses the store.
"""
