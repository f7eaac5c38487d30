"""Faults and load on the emulated hardware, over HTTP.

It tells the control plane nothing.
"""
