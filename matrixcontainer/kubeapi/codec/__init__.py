"""Decoding and encoding of bodies: JSON, YAML, protobuf, and content negotiation.

It knows nothing of what objects mean.
"""
