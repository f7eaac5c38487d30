"""The generic registry: resource types, REST verbs, lists, watches and `core`.

It knows no kind by name and nothing of HTTP.
"""
