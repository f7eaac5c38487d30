"""Output: tables, documents, errors, and the columns of each noun.

Calls no service.
"""
