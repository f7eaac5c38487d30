"""Reads the switches' tables back: the digest of the actual forwarding state of each slice."""

from __future__ import annotations

from typing import Any

from matrixlink.model.program_digest import digest
from matrixlink.ports import Hardware

__all__ = ["Readback", "digest"]


class Readback:
    """Digests by slice, recomputed only for a table that was replaced since (tables are never modified in place)."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._known: dict[str, tuple[dict[str, Any], str]] = {}

    def digest(self, slice: str) -> str | None:
        """The digest of a slice's present table; None if there is none."""
        table = self._hardware.tables.get(slice)
        if table is None:
            self._known.pop(slice, None)
            return None
        known = self._known.get(slice)
        if known is None or known[0] is not table:
            known = self._known[slice] = (table, digest(table))
        return known[1]
