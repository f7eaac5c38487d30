"""Probes and traffic over the emulated ports.

It tells the control plane nothing: counters do.
"""
