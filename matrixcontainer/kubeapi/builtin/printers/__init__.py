"""The columns and cells of tables of built-in kinds.

Never changes an object.
"""
