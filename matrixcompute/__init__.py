"""MatrixCompute: instances and their lifecycle.

It places no nodes and reserves no bandwidth: MatrixResource and MatrixLink do.
"""
