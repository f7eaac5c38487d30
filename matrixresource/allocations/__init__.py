"""The verbs over allocations, reservations and quotas, with the ledger kept in step.

It chooses no place itself: the scheduler does.
"""
