"""Workflows over instances: the context that their steps get, and how a workflow is opened."""
