"""Tables of MatrixLink and queries on them.

It decides nothing.
"""
