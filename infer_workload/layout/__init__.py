"""The layout of a model: the role of each node and die, and how it changes after a loss, a drain or a scaling."""
