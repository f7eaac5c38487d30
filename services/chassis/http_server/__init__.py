"""The HTTP server of the REST services: what a client may send, when an answer is dated, and an orderly stop."""
