"""HTTP requests to verbs and back: routing, forms, subresources, discovery, OpenAPI.

Stores nothing and decides no rule of a kind.
"""
