"""Tables of MatrixResource and the questions asked of them.

It decides nothing.
"""
