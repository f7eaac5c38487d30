"""Transactions, the change log, group commit and cached tables, on SQLAlchemy.

It defines no service's tables.
"""
