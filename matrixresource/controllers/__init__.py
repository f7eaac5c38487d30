"""Periodic work: agents' reports taken in, approved defragmentations carried out.

It adds no verb of its own.
"""
