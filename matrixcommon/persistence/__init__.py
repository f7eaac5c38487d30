"""Transactions, the change log, group commit and cached tables over SQLAlchemy.

It defines no service's tables.
"""
