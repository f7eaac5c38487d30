"""The machine as it changes: supernodes, closed domains, versions of the topology.

It places nobody.
"""
