"""Faults put on emulated hardware, over HTTP.

It tells the control plane nothing.
"""
