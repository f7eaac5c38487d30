"""Traces and generators of requests.

It serves nothing.
"""
