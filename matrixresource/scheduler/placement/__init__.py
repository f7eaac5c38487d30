"""Where a request fits: scopes, rules, preferences, blocks.

It takes nothing: it only says where.
"""
