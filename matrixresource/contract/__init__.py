"""What goes over the wire to and from MatrixResource.

Neighbours may import it; it imports no service code.
"""
