"""Paths for each plane.

It takes no bandwidth.
"""
