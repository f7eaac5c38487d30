"""The verbs over instances.

It does no long work itself: it begins workflows.
"""
