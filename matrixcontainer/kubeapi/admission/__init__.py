"""Admission: webhooks, pod priority, service accounts, service addresses and RBAC escalation checks.

It may mutate or reject a request but never writes to the store.
"""
