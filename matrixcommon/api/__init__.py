"""REST conventions: lists and watches, fast paths, the client, access to projects.

It decides nothing about any particular resource.
"""
