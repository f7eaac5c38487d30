"""Bytes in and out: HTTP/1.1, websockets, ASGI, TLS certificates.

Never looks into a request; that is for endpoints.
"""
