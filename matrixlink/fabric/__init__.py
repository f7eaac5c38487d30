"""How fast bytes move: what links carry, fair shares, patterns of traffic.

Pure and seeded: no table, no agent, no clock.
"""
