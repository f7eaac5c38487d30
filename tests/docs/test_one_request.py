"""Every function that docs/explanation/one-request.md names exists under that name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "one-request.md"
NAMES = sorted(set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+:[A-Za-z_.]+)`", PAGE.read_text())))


def test_the_page_names_functions():
    assert len(NAMES) > 40


@pytest.mark.parametrize("name", NAMES)
def test_what_the_page_names_exists(name):
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_]+/[a-z_/]+\.(?:yaml|py))`", PAGE.read_text()))))
def test_what_the_page_points_at_is_there(path):
    assert (ROOT / path).exists()
