"""Tables of MatrixResource and queries on them.

It decides nothing.
"""
