"""Periodic work that brings instances to their specs.

It adds no verbs of its own.
"""
