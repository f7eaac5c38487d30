"""Every block of these pages runs: one shell per page, so that variables last, and one real stack for all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser

from tests.e2e.tours import ROOT, needs_kubectl, stop_stacks

PAGES = (
    "tutorials/first-instance.md",
    "tutorials/first-failure.md",
    "how-to/plan-capacity.md",
    "how-to/draw-your-own-supernode.md",
    "how-to/bring-your-yaml.md",
    "how-to/tune-an-autoscaler.md",
    "how-to/rehearse-an-upgrade.md",
    "how-to/experiments.md",
    "how-to/watch-a-stack.md",
    "tutorials/write-an-operator.md",
)
ELSEWHERE = {
    "tutorials/autoscaling.md": "tests/e2e/test_autoscaling_tour.py",  # a stack of its own, at another pace
}
"""Pages whose blocks another test runs."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), needs_kubectl, pytest.mark.xdist_group("pages")]
TIMEOUT_WALL_S = 200.0


class Shells:
    """A home with `matrixctl` on its path; the state folder in it is shared, so pages find the stack that is up."""

    def __init__(self, home: Path) -> None:
        self.home = home
        shim = home / "bin" / "matrixctl"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m services.matrixctl "$@"\n')
        shim.chmod(0o755)
        self.environment = {
            "HOME": str(home),
            "PATH": f"{shim.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }

    def run(self, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-x", "-c", script],
            cwd=folder, env=self.environment, capture_output=True, text=True, timeout=TIMEOUT_WALL_S,
        )  # fmt: skip


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shells]:
    """With a stack up, as the first page's first block leaves it."""
    made = Shells(tmp_path_factory.mktemp("reader"))
    done = made.run("matrixctl up --time-scale 60", made.home)
    assert done.returncode == 0, done.stderr
    kubeconfig = made.run("matrixctl kubeconfig", made.home).stdout.strip()
    made.environment["KUBECONFIG"] = kubeconfig
    yield made
    made.run("matrixctl down", made.home)


def blocks(page: str, language: str = "sh") -> list[str]:
    """The blocks of a page in a language, in order, as Sybil finds them."""
    path = ROOT / "docs" / page
    document = Document(path.read_text(), str(path))
    parser = CodeBlockParser(language, evaluator=lambda example: None)
    return [str(region.parsed) for region in parser(document)]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(shells: Shells, page: str, tmp_path: Path) -> None:
    found = blocks(page)
    assert found
    try:
        done = shells.run("\n".join(found), tmp_path)
    finally:
        stop_stacks(tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    if page.endswith("first-failure.md"):
        assert "NodeReplaced" in done.stdout


def test_no_page_is_forgotten() -> None:
    """Whoever writes a page with blocks for a shell puts it above."""
    folders = ("tutorials", "how-to")
    pages = [f"{folder}/{file.name}" for folder in folders for file in sorted((ROOT / "docs" / folder).glob("*.md"))]
    assert {page for page in pages if blocks(page)} == {*PAGES, *ELSEWHERE}
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())


def test_the_first_test_of_the_page_on_operators_passes(shells: Shells, tmp_path: Path) -> None:
    first = blocks("how-to/test-your-operator.md", "python")[0]
    (tmp_path / "test_page.py").write_text(first)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = shells.run("pytest -q test_page.py", tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "1 passed" in done.stdout
