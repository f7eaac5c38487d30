"""Bodies and media types: JSON, YAML, protobuf, content negotiation.

Knows no object's meaning.
"""
