"""Traces and generators of requests."""
