"""Published figures beside predictions, the fit, ablations.

Nothing that serves reads it.
"""
