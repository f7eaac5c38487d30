"""Answers that write nothing: plans, fragmentation, capacity reports.

It never changes the ledger or a table.
"""
