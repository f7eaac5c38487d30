"""Defragmentations: planned, reviewed, and carried out.

MatrixCompute moves the members of instances; a workflow here moves the others.
"""
