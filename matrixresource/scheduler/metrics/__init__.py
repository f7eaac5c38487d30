"""Read-only views: capacity, blast radius, the state as a graph.

It changes nothing.
"""
