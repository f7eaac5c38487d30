"""The built-in kinds: one table of them, their strategies, defaults and rules.

Acts on none of them.
"""
