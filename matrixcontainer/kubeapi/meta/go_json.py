"""JSON as a Go server prints it."""

from __future__ import annotations

import json
from typing import Any


def compact(value: Any) -> bytes:
    """JSON as a Go server prints what has no fields of its own: sorted, without spaces, angle brackets escaped."""
    return as_printed(value, sort_keys=True)


def as_printed(value: Any, sort_keys: bool = False) -> bytes:
    """JSON as a Go server prints it; the fields of types come in their own order."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").encode()
