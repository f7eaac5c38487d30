"""The routes of MatrixResource.

They decide nothing: they call the verbs and show what comes of it.
"""
