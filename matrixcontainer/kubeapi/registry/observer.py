"""Observer: interface for the API's metrics of requests and webhooks, and their page. None is installed by default."""

from typing import Protocol

from matrixcontainer.kubeapi.auth.authorizer import Attributes


class Observer(Protocol):
    """Called during every request: it must be fast and must not raise."""

    def record_request(self, attributes: Attributes, code: int, seconds: float) -> None:
        """A request was answered; for a watch, when its response started."""

    def record_admission(self, kind: str, operation: str, rejected: bool, seconds: float) -> None:
        """A webhook was called: `kind` is validating or admit (mutating), as upstream names them."""

    def render(self) -> bytes:
        """The response to `GET /metrics`, in Prometheus' text format."""
