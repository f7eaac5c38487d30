"""Fault scenarios as matrixctl runs them: against a stack of its own machine.

What happens in a run is decided in `matrixcompute.scenarios`.
"""
