"""Every path that docs/reference/where.md names exists, and it names ten behaviours or more."""

from __future__ import annotations

import re

from tests.golden import ROOT


def test_every_path_exists() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \|$", (ROOT / "docs/reference/where.md").read_text(), re.MULTILINE)
    assert len(rows) >= 10
    for behaviour, paths in rows:
        for path in re.findall(r"`([^`]+)`", paths):
            assert (ROOT / path).exists(), f"{behaviour}: {path}"
