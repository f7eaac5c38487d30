"""Read-only views: capacity, blast radius, the state as a graph.

Nothing here changes the state.
"""
