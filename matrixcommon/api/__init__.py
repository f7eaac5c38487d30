"""The REST conventions: lists and watches, fast paths, the client, and who may see a project.

It knows no particular resource.
"""
