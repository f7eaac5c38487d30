"""Clients of MatrixResource and MatrixLink, with the calls that MatrixCompute makes.

They keep no state.
"""
