"""The routes of MatrixLink.

They decide nothing: they call the verbs and show what comes of it.
"""
