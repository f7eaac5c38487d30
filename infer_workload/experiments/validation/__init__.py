"""Validation of the timing model against published figures: the fit, predictions with intervals, leave-one-out tests
and ablations."""
