"""The object store: one revision counter, writes durable before they are acknowledged, and a change history.

It reads nothing of an object but its metadata.
"""
