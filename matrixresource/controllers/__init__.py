"""Periodic work: processing agents' reports, quarantining flapping nodes, ending outdated plans.

It adds no verb of its own.
"""
