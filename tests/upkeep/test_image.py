"""The image holds every package that is installed."""

from __future__ import annotations

import re
import tomllib

from tests.golden import ROOT


def test_the_image_copies_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    copied = set(re.findall(r"^COPY (\w+) /install/src/\w+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert copied == packages
