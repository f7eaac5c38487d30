"""Traffic over the fabric, derived from the counters that agents report.

It changes nothing.
"""
