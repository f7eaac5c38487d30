"""How long a link agent's work takes: `link_stages.yaml`, or a file of one's own."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml

from matrixcommon.emulation.stages import Stages, read_stages


@cache
def _default() -> Stages:
    text = files("matrixlink.agent").joinpath("link_stages.yaml").read_text()
    return read_stages(yaml.safe_load(text), "link_stages.yaml")


def link_stages(path: Path | None = None) -> Stages:
    """The stages of emulated link agents: the built-in file, with the work that `path` gives replaced."""
    if path is None:
        return _default()
    return _default() | read_stages(yaml.safe_load(path.read_text()), str(path))
