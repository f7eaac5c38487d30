"""Timed behaviour as data: stages with delays; and the clock of a running stack, whose speed may change.

Stages keep no time: clocks are handed in.
"""
