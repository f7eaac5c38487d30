"""The wire shapes of MatrixLink: what clients send and what they receive.

Other packages may import it; it imports no service code.
"""
