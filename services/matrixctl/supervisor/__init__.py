"""A stack of processes on one machine: start, watch, restart, stop.

Asks services only whether they are ready.
"""
