"""How REST is spoken: lists and watches, fast paths, the client, who may see a project.

It decides nothing about any resource.
"""
