"""MatrixCompute: instances, from the request to what becomes of it.

It places nobody and promises no bandwidth: its neighbours do.
"""
