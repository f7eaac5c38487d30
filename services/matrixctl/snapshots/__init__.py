"""Snapshots of a stack on this machine: take (while it runs), show, restore.

Pauses the processes while it copies their databases, and calls no service.
"""
