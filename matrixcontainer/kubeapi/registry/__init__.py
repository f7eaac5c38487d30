"""Generic storage of resources: the registry of kinds, the verbs, lists and watches, `core`.

Knows no kind by name and nothing of HTTP.
"""
