"""How the timing model stands to what has been published: the fit, predictions with intervals, and what is left out."""
