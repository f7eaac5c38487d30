"""Transactions, the change log, groups of commits and cached tables over SQLAlchemy.

It defines no table of a service.
"""
