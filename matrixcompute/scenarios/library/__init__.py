"""The scenarios that come with the project, one file each, by the name of the file; `matrixctl scenario list` shows
them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml

from matrixcompute.scenarios.checks import parse
from matrixcompute.scenarios.schema import Scenario


@cache
def library() -> dict[str, Scenario]:
    """By name."""
    found = {}
    for file in sorted(files("matrixcompute.scenarios.library").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".yaml"):
            name, scenario = parse(yaml.safe_load(file.read_text("utf-8")), file.name.removesuffix(".yaml"))
            found[name] = scenario
    return found
