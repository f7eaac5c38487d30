"""The two neighbours, MatrixResource and MatrixLink, as MatrixCompute asks them.

It keeps nothing.
"""
