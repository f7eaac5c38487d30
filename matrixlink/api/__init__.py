"""The routes of MatrixLink.

They decide nothing: they call the verbs and return the results.
"""
