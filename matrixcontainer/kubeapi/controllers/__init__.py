"""What acts on committed objects by itself; `manager` makes all controllers and runs them.

Never answers a client and never imports an endpoint.
"""
