"""The built-in kinds: their table, strategies, defaults and validation.

Only storage behaviour: controllers act on the objects.
"""
