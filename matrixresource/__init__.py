"""MatrixResource: which hardware exists, who holds it, and where the next request fits.

It knows nothing of instances or of link loads.
"""
