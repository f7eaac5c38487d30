"""Traffic that the fabric core is measured and tested with: collectives, single messages, paths over each plane, how
evenly tables carry a pattern, and rates kept through single arrivals and departures.

The product never runs it.
"""
