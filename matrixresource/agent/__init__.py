"""ResourceAgent, the node's side of MatrixResource, and the emulated hardware under it.

It never reads the service's tables.
"""
