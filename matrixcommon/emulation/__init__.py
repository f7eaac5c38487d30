"""Timed behaviour as data: stages with delays.

It keeps no time: clocks are handed in.
"""
