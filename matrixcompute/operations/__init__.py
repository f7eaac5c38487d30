"""Workflows over instances, as the engine carries them: what their steps are given, and how one is opened."""
