"""Fair rates: weighted max-min with floors and ceilings, runs to completion, single changes.

It knows no topology.
"""
