"""The verbs over instances.

They do no long work themselves: they open workflows.
"""
