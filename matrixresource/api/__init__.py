"""The routes of MatrixResource.

They decide nothing: they call the verbs and return the results.
"""
