"""API machinery basics: errors, names, quantities, selectors, JSONPath and timestamps.

It imports no other room.
"""
