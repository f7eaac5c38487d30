"""What goes over the wire to and from MatrixLink.

Neighbours may import it; it imports no service code.
"""
