"""Periodic work that brings instances to what is asked of them.

It adds no verb of its own.
"""
