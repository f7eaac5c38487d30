"""Structural schemas and the type table of built-in kinds: pruning, defaulting and validation.

It knows nothing of stores or requests.
"""
