"""Fair rates: weighted max-min with floors and ceilings.

It knows no topology.
"""
