"""Defragmentations: planned, reviewed, carried to their end.

It moves nobody itself: MatrixCompute does.
"""
