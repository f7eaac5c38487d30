"""Where a request fits: scopes, constraints, preferences, blocks.

Nothing here takes capacity; it only finds placements.
"""
