"""How commands reach a stack: its services and its Kubernetes API.

They print nothing.
"""
