"""The ASGI application: requests, responses, streams and websockets; and TLS certificates.

It does not interpret requests; endpoints do.
"""
