"""MatrixLink: three planes, slices on them, and the truth about their links.

It allocates no node.
"""
