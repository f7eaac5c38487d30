"""Rules about one node: states, fault levels, what its faults mean, what it should consist of.

Pure: no table, no clock of its own.
"""
