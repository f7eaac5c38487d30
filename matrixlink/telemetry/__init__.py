"""What moves over the fabric, as the counters that agents report tell it.

It changes nothing.
"""
