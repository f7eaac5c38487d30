"""The schemas of custom resources: what all definitions share, the specs, and how a model becomes structural."""
