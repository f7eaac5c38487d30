"""The process of the embedded Kubernetes API.

It answers no request itself.
"""
