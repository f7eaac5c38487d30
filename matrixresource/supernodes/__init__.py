"""Changes of the machine: supernodes, closed domains, versions of the topology.

It places no allocations.
"""
