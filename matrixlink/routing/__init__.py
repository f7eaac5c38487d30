"""Paths on each plane.

It books no bandwidth.
"""
