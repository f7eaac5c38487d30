"""Periodic work: agents' reports, link health, leases, departed supernodes.

It adds no verbs of its own.
"""
