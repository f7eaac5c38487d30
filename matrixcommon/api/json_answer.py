"""A response whose content is encoded as JSON directly."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Response


class JsonResponse(Response):
    """Like Starlette's JSONResponse in a twentieth of the time (0.3 ms instead of 7 for a page of 500 links), during
    which the event loop is blocked."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)
