"""A small client of any Kubernetes API: the kinds this package uses, and events.

Holds no copy of anything and never retries by itself.
"""
