"""Reading the switches' tables back: the digest of what each slice is really forwarded by."""

from __future__ import annotations

from typing import Any

from matrixlink.model.program_digest import digest
from matrixlink.ports import Hardware

__all__ = ["Readback", "digest"]


class Readback:
    """Digests by slice, worked out again only for a table that was replaced since (tables are never changed in
    place)."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._known: dict[str, tuple[dict[str, Any], str]] = {}

    def digest(self, slice: str) -> str | None:
        """The digest of a slice's table as it is now; None where there is none."""
        table = self._hardware.tables.get(slice)
        if table is None:
            self._known.pop(slice, None)
            return None
        known = self._known.get(slice)
        if known is None or known[0] is not table:
            known = self._known[slice] = (table, digest(table))
        return known[1]
