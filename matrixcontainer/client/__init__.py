"""A small client for any Kubernetes API: the kinds that this package uses, and events.

It caches nothing and never retries on its own.
"""
