"""Concepts that every service shares: names of hardware, planes, quantities, errors, states, clocks, API models.

It performs no I/O.
"""
