"""Timed behaviour as data, in stages with delays; and the clock of a running stack, whose speed may change.

Stages keep no time of their own: the clock is passed in.
"""
