"""Changes of what is allocated: resize, repair, preemption, reservations, batches.

These functions use the ledger's state, not its verbs.
"""
