"""Fault scenarios run by matrixctl against a stack on the same machine.

`matrixcompute.scenarios` decides what happens in a run.
"""
