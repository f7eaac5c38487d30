"""The digest of a switch table: a few hex digits by which an agent that read a table back and MatrixLink can tell
whether it matches the request. Computed over what a program puts into the tables, not over its bookkeeping."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIGEST_FIELDS = (
    "isolation_key", "qos_class", "weight", "floor_gbps", "ceiling_gbps", "peers", "stripes", "detours", "peerings",
    "security_rules",
)  # fmt: skip
"""The fields of a program that are in the tables."""


def digest(table: Mapping[str, Any]) -> str:
    """Sixteen hex digits (64 bits of SHA-256): for finding accidents, not forgers. `table` is a program's JSON form
    with snake_case fields; numbers count by their value, so 4 and 4.0 are one."""
    kept = {key: _normalise(table.get(key)) for key in DIGEST_FIELDS}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def _normalise(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _normalise(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_normalise(each) for each in value]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
