"""Tables of MatrixCompute and the questions asked of them.

It decides nothing.
"""
