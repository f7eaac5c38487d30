"""How fast bytes move: rates of links, fair shares, traffic patterns.

Pure and seeded: no tables, no agents, no clock.
"""
