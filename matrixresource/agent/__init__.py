"""ResourceAgent, the node's side of MatrixResource, and the emulated hardware beneath it.

It never reads a table of the service.
"""
