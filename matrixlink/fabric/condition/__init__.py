"""Rates of links and planes, as built and at present.

Nothing is shared out here.
"""
