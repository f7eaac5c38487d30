"""MatrixLink: three network planes, the slices on them, and the condition of their links.

It allocates no nodes.
"""
