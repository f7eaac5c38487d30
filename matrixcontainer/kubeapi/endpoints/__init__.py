"""HTTP endpoints: routing, requests and responses of all verbs, subresources, discovery, OpenAPI and metrics.

They store nothing and implement no kind's rules.
"""
