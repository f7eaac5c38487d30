"""Floors within the capacity of links: admission, the bandwidth ledger, the effects of failures.

It programs no agents.
"""
