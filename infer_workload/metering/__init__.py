"""Tokens by tenant and key: what was used, and how much may be.

It knows neither engine nor deployment, only their names.
"""
