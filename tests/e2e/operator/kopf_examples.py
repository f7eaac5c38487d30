"""Kopf's own published examples, as they lie in its source package of the version that is installed here.

They are fetched once with pip, like any dependency, and kept in `.cache/kopf-examples/<version>`; nothing of them is in
this repository. Some use pykube-ng as their client, which is fetched beside them for their processes alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
CLIENT = "pykube-ng==23.6.0"


def folder() -> Path:
    """Where they are, or would be."""
    cache = Path(os.environ.get("KOPF_EXAMPLES_CACHE") or REPOSITORY / ".cache" / "kopf-examples")
    return cache / version("kopf")


def ensure_examples() -> Path | None:
    """The folder with `examples` and `lib`; None where they cannot be fetched."""
    target = folder()
    if (target / "examples").exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as fresh:
        sources = ["download", "--no-deps", "--no-binary", ":all:", "-d", fresh, f"kopf=={version('kopf')}"]
        client = ["install", "--target", f"{fresh}/lib", CLIENT]
        if not all(_pip(*arguments) for arguments in (sources, client)):
            return None
        package = next(Path(fresh).glob("kopf-*.tar.gz"))
        with tarfile.open(package) as archive:
            wanted = [each for each in archive if "/examples/" in each.name]
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's 3.11.2 has none
            archive.extractall(fresh, members=wanted)
        Path(fresh, "lib").rename(Path(fresh, package.name.removesuffix(".tar.gz"), "lib"))
        Path(fresh, package.name.removesuffix(".tar.gz")).rename(target)
    return target


def _pip(*arguments: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *arguments], capture_output=True, text=True, timeout=300
    )
    return done.returncode == 0
