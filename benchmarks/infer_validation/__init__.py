"""Computes the fitted constants of the timing model. The product never runs it."""
