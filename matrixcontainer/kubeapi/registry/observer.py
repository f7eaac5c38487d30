"""Who counts what the API does: requests, webhooks, and the page on which that is read. By itself nobody does."""

from typing import Protocol

from matrixcontainer.kubeapi.auth.authorizer import Attributes


class Observer(Protocol):
    """Called on the way of every request: it must be quick and must not raise."""

    def answered(self, asked: Attributes, code: int, seconds: float) -> None:
        """A request was answered; of a watch, its head."""

    def admitted(self, kind: str, operation: str, rejected: bool, seconds: float) -> None:
        """A webhook was called: `kind` is validating or admit (mutating), as upstream names them."""

    def page(self) -> bytes:
        """What `GET /metrics` answers, in the text format of Prometheus."""
