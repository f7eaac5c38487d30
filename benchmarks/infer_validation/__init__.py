"""How the fitted constants of the timing model were found. The product never runs it."""
