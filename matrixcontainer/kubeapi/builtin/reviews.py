"""Reviews are questions, not objects: created, answered, never stored. The answers come from access.py."""

from matrixcontainer.kubeapi.registry.strategy import Strategy


class ReviewStrategy(Strategy):
    has_generation = False
