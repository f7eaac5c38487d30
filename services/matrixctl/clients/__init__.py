"""Clients of a stack's services and of its Kubernetes API.

They print nothing.
"""
