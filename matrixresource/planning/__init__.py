"""Read-only answers: plans, fragmentation, capacity reports.

It never changes the ledger or a table.
"""
