"""Fair rates: weighted max-min with floors and ceilings.

No topology is known here.
"""
