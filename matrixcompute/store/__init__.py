"""The tables of MatrixCompute and their queries.

They decide nothing.
"""
