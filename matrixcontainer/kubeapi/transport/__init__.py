"""From an ASGI server and back: requests, answers, streams, websockets; TLS certificates.

Never looks into a request; that is for endpoints.
"""
