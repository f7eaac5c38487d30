"""JSON as a Go server prints it."""

from __future__ import annotations

import json
from typing import Any


def compact(value: Any) -> bytes:
    """Sorted, without spaces, angle brackets escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").encode()
