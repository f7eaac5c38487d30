"""Tables, documents, refusals; which noun is shown how.

It asks no service.
"""
