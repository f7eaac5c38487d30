"""An engine to test with: the one that answers, else one of our own for as long as the tests run.

And the images: what CLOUDMATRIX_BASE and CLOUDMATRIX_POSTGRES_IMAGE name, else made from Debian's packages, since a test
machine may have no registry in reach. What is made stays in `.cache` for the next run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CACHE = ROOT / ".cache"
BASE = "cloudmatrix/base:test"
POSTGRES = "cloudmatrix/postgres:test"
PACKAGES = "python3,python3-venv,ca-certificates,postgresql"
ENGINE_TIMEOUT_WALL_S = 60.0


def run(*command: str, **settings: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=1200, env=os.environ | settings, cwd=ROOT
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-3000:]}"
    return done.stdout


def answers() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def engine() -> Iterator[None]:
    """DOCKER_HOST is right inside. Skips the test where there is no engine and none can be started."""
    if answers():
        yield
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None or shutil.which("docker") is None:
        pytest.skip("no container engine: none answers `docker info`, and there is no dockerd that we may start")
    socket, folder = CACHE / "docker.sock", CACHE / "docker"
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["--data-root", str(folder / "data"), "--exec-root", str(folder / "run")]
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(
            ["dockerd", "--host", f"unix://{socket}", "--pidfile", str(folder / "pid"), *arguments],
            stdout=log,
            stderr=log,
        )
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = f"unix://{socket}"
    try:
        until = time.monotonic() + ENGINE_TIMEOUT_WALL_S
        while not answers():
            if daemon.poll() is not None or time.monotonic() > until:
                pytest.skip(f"dockerd does not come up here; {folder / 'log'} says why")
            time.sleep(0.2)
        yield
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)
        os.environ.pop("DOCKER_HOST")
        if before is not None:
            os.environ["DOCKER_HOST"] = before


def images() -> dict[str, str]:
    """The environment that names the images to use, made where they are missing; skips where they cannot be."""
    named = ("CLOUDMATRIX_BASE", "CLOUDMATRIX_POSTGRES_IMAGE")
    if all(name in os.environ for name in named):
        return {name: os.environ[name] for name in named}
    if not _exists(BASE):
        _make_base()
    if not _exists(POSTGRES):
        run(
            "docker",
            "build",
            "-t",
            POSTGRES,
            "--build-arg",
            f"BASE={BASE}",
            str(HERE / "postgres"),
            DOCKER_BUILDKIT="0",
        )
    return {"CLOUDMATRIX_BASE": BASE, "CLOUDMATRIX_POSTGRES_IMAGE": POSTGRES}


def _exists(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0


def _make_base() -> None:
    """A Debian of about 700 MB with Python and PostgreSQL; takes a minute or two."""
    if shutil.which("debootstrap") is None:
        pytest.skip("no base image: CLOUDMATRIX_BASE names none, and there is no debootstrap to make one")
    root = CACHE / "debian"
    if not (root / "usr/bin/python3").exists():
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root))
    archive = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    made = subprocess.run(["docker", "import", "-", BASE], stdin=archive.stdout, capture_output=True, check=False)
    assert archive.wait() == 0
    assert made.returncode == 0, made.stderr.decode()
    shutil.rmtree(root)


def wheels() -> None:
    """The locked packages beside the Dockerfile, since a build may have no package index."""
    if any((ROOT / "build" / "wheels").glob("*.whl")):
        return
    pip = ["pip", "download", "--quiet", "--only-binary", ":all:", "--require-hashes", "-r", "requirements.lock"]
    run(sys.executable, "-m", *pip, "-d", "build/wheels")
