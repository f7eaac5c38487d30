"""Periodic work: agents' reports, link health, leases, departed supernodes.

It adds no verb of its own.
"""
