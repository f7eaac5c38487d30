"""Authentication by token, RBAC authorization, access reviews, impersonation and the default roles.

It never writes roles; a controller reconciles the default ones.
"""
