"""Changes of what is allocated: resize, repair, preemption, reservations, batches.

It calls no verb of the ledger, only its state.
"""
