"""Bytes in and out: HTTP/1.1, websockets, TLS certificates.

Never looks into a request; that is for endpoints.
"""
