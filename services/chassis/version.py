"""The version of the installed package."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    try:
        return metadata.version("cloudmatrix")
    except metadata.PackageNotFoundError:
        return "not installed"
