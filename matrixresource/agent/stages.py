"""How long a node agent's work takes: `node_stages.yaml`, or a file of one's own."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml

from matrixcommon.emulation.stages import Stages, read_stages


@cache
def _default() -> Stages:
    return read_stages(
        yaml.safe_load(files("matrixresource.agent").joinpath("node_stages.yaml").read_text()), "node_stages.yaml"
    )


def node_stages(path: Path | None = None) -> Stages:
    """The stages of emulated nodes: the built-in file, with the work that `path` gives replaced."""
    if path is None:
        return _default()
    return _default() | read_stages(yaml.safe_load(path.read_text()), str(path))
