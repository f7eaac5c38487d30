"""Forwarding tables of the UB plane, the events that change them, and the flows that follow.

Slices are not known here.
"""
