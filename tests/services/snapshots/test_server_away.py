"""A snapshot of databases whose server is away is refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import Unavailable
from services.chassis import database
from services.snapshots.server_databases import dump, load

AWAY = "postgresql://me:secret@127.0.0.1:1/cm_{service}"


def test_what_is_not_reached_is_neither_copied_nor_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CONNECT_ATTEMPTS", 1)
    with pytest.raises(Unavailable, match=r"the link database cannot be used: .*refused"):
        dump("link", AWAY, tmp_path / "link.db")
    kept = tmp_path / "resource.db"
    kept.touch()
    with pytest.raises(Unavailable, match=r"the resource database cannot be used: .*refused"):
        load(AWAY, tmp_path)
    assert kept.exists()
