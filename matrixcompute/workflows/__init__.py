"""Long work, each a list of steps before it is code."""
