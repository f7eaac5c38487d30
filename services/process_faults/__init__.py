"""Faults on a stack's processes and databases, for scenarios, if `matrixctl up` runs the stack."""
