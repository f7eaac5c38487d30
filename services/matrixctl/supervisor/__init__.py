"""A stack of processes on one machine: started, watched, started again, stopped.

It asks no service for anything but readiness.
"""
