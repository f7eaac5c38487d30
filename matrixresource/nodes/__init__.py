"""Rules about one node: its states, fault levels, the meaning of its faults, and its expected inventory.

Pure: no tables, and no clock of its own.
"""
