"""Timed behaviour as data: stages with delays; and the clock of a running stack, whose speed may change.

Stages do not keep time; clocks are passed in.
"""
