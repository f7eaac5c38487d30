"""Structural schemas and the table of built-in types: pruning, defaults, validation.

Knows no store and no request.
"""
