"""The scenarios that come with the project, one file each, by the name of the file; `matrixctl scenario list` shows
them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from matrixcommon.model.yaml_text import packaged_yaml
from matrixcompute.scenarios.checks import parse
from matrixcompute.scenarios.schema import Scenario


@cache
def library() -> dict[str, Scenario]:
    """By name."""
    found = {}
    for file in sorted(files("matrixcompute.scenarios.library").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".yaml"):
            document = packaged_yaml("matrixcompute.scenarios.library", file.name)
            name, scenario = parse(document, file.name.removesuffix(".yaml"))
            found[name] = scenario
    return found
