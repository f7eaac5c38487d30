"""The package as its users get it: a wheel in an empty environment runs the demo from any folder, and the source
distribution makes the same wheel again."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from services.matrixctl.demo.failover import FAILOVER
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import stack_report
from tests.golden import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(590)]

CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "CLOUDMATRIX", "VIRTUAL"))}
BUILD = """
import os, sys
from setuptools import build_meta
print(getattr(build_meta, sys.argv[1])(sys.argv[2]))
"""


def built(source: Path, what: str, target: Path) -> Path:
    """A distribution, made by the build backend of the project without an index."""
    target.mkdir(exist_ok=True)
    command = [sys.executable, "-c", BUILD, f"build_{what}", str(target)]
    done = subprocess.run(command, cwd=source, env=CLEAN, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return target / done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in version control, and nothing that lies beside it."""
    folder = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return built(source, "wheel", source.parent / "wheel")


def members(wheel: Path) -> dict[str, int]:
    """Files by name with their checksums, without the list of them."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if not each.filename.endswith("RECORD")}


def test_the_source_distribution_makes_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    packed = built(source, "sdist", tmp_path / "sdist")
    with tarfile.open(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's 3.11.2 has none
        archive.extractall(tmp_path)
    again = built(tmp_path / packed.name.removesuffix(".tar.gz"), "wheel", tmp_path / "wheel")
    assert again.name == wheel.name
    assert members(again) == members(wheel)


def test_the_changes_of_the_version_are_told() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## {version}" in changes
    assert "docs/how-to/upgrade.md" in changes


def test_the_wheel_in_an_empty_environment_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    """What it depends on is taken from this environment, where the lock file has put it: nothing is fetched."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    here = [path for path in sys.path if path.endswith("site-packages")]
    target = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True, env=CLEAN)
    (target / "locked.pth").write_text("\n".join(here))
    tried = subprocess.run(
        [str(python), "-c", "import services; print(services.__file__)"],
        cwd=elsewhere, env=CLEAN, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert str(target) in tried.stdout, "the checkout was imported"
    run = [str(python.with_name("matrixctl"))]
    shown = subprocess.run([*run, "--version"], cwd=elsewhere, env=CLEAN, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("cloudmatrix ")
    story = subprocess.run(
        [*run, "demo", "--state", str(tmp_path / "state")], cwd=elsewhere, env=CLEAN, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert story.returncode == 0, story.stdout[-3000:] + story.stderr[-3000:]
    assert [step.title for step in FAILOVER.steps if step.title not in story.stdout] == []
    assert "every step succeeded" in story.stdout
    assert not stack_report(StateFolder(tmp_path / "state")).running
    plugin = subprocess.run(
        [str(python), "-m", "pytest", "--fixtures", "-q"], cwd=elsewhere, env=CLEAN, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert "cloudmatrix_url" in plugin.stdout, "pytest does not find the plugin of the package"
