"""Tables of MatrixLink and the questions asked of them.

It decides nothing.
"""
