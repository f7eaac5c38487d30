"""An HTTP response: code, media type, headers and a body."""

from collections.abc import AsyncIterator
from typing import Any

from matrixcontainer.kubeapi.registry.watch import Watch
from matrixcontainer.kubeapi.storage.objects import dump_json


class Response:
    """The body is bytes, a watch, or a stream of chunks."""

    def __init__(
        self,
        body: bytes | Watch | AsyncIterator[bytes],
        code: int = 200,
        media: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.body, self.code, self.media, self.headers = body, code, media, headers or {}


def as_json(value: Any, code: int = 200) -> Response:
    return Response(dump_json(value), code)
