"""The routes of MatrixCompute.

They decide nothing: they call the verbs and return the results.
"""
