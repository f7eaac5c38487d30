"""The composition of an instance, its states and its conditions.

Pure.
"""
