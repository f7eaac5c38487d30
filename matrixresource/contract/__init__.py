"""The wire shapes of MatrixResource: what clients send and what they receive.

Other packages may import it; it imports no service code.
"""
