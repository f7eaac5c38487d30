"""Traffic for benchmarks and tests of the fabric core: collectives, single messages, paths over each plane, how evenly
tables carry a pattern, and rates updated for single arrivals and departures.

The product never runs it.
"""
