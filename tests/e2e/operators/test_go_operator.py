"""An operator in Go, made with controller-runtime, tested on a whole stack by the `kubeconfig` fixture.

It is built once for each version of its source, through the Go module proxy; without Go the test is skipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.testing.live import LiveStack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "examples" / "operators" / "members"
TIMEOUT_WALL_S = 90.0
INSTANCE = """
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {name: llm}
spec: {nodes: 2, spares: 1}
"""


def eventually(what: Callable[[], Any], message: str) -> Any:
    until = time.monotonic() + TIMEOUT_WALL_S
    while not (seen := what()):
        assert time.monotonic() < until, message
        time.sleep(0.1)
    return seen


@pytest.fixture(scope="module")
def program() -> Path:
    """The operator's binary."""
    if not shutil.which("go"):
        pytest.skip("NO GO HERE: an operator made with controller-runtime cannot be built")
    digest = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in ("main.go", "go.sum"))).hexdigest()
    target = ROOT / ".cache" / "operators" / f"members-{digest[:16]}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_suffix(".partial")
        command = ["go", "build", "-buildvcs=false", "-mod=readonly", "-o", str(draft), "."]
        settings = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}
        built = subprocess.run(command, cwd=SOURCE, env=settings, capture_output=True, text=True, check=False)
        if built.returncode:
            pytest.skip(f"THE GO OPERATOR COULD NOT BE BUILT: {built.stderr.strip().splitlines()[-1:]}")
        draft.replace(target)
    return target


@pytest.fixture
def operated(program: Path, kubeconfig: Path, cloudmatrix_live: LiveStack, tmp_path: Path) -> Iterator[LiveStack]:
    """The stack with the operator at work on it."""
    log = tmp_path / "operator.log"
    with log.open("wb") as out:
        process = subprocess.Popen([program], env={**os.environ, "KUBECONFIG": str(kubeconfig)}, stderr=out, stdout=out)
    try:
        yield cloudmatrix_live
        assert process.poll() is None, log.read_text()[-2000:]
    finally:
        process.terminate()
        process.wait(20)


def test_it_lists_the_members_of_an_instance_that_heals(operated: LiveStack, tmp_path: Path) -> None:
    def written() -> dict[str, str]:
        found = operated.cluster.read("/api/v1/namespaces/default/configmaps/llm-members")
        return found["data"] if found else {}

    manifest = tmp_path / "llm.yaml"
    manifest.write_text(INSTANCE)
    operated.cluster.apply(manifest)
    eventually(lambda: written().get("ready") == "true", "the operator never saw the instance ready")
    before = written()["nodes"].split(",")
    assert len(before) == 2

    fault = operated.inject("node-down", before[0])

    def healed() -> bool:
        now = written()
        return now["ready"] == "true" and before[0] not in now["nodes"] and before[1] in now["nodes"]

    eventually(healed, "the operator never saw the replacement")
    operated.repair(fault)
    operated.cluster.delete(manifest)
    eventually(lambda: not written(), "the ConfigMap outlives its instance")


def test_each_process_has_its_url(cloudmatrix_url: Callable[[str], str], cloudmatrix_live: LiveStack) -> None:
    assert cloudmatrix_url("compute") == cloudmatrix_live.url("compute")
    assert cloudmatrix_url("kube").startswith("https://127.0.0.1:")
