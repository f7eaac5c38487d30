"""client-go's own informers, and controller-runtime's caches, stay in step with the embedded API through its death."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.api_session import ApiSession
from tests.conformance.runner import server_of
from tests.conformance.things import CRDS, GROUP, WIDGETS, config_map, widget
from tests.e2e.kube.test_kube_durability import client_of
from tests.e2e.realkube.build import ensure_program
from tests.matrixcontainer.kubeapi.process import KubeProcess

PATIENCE_S = 60.0


@pytest.fixture
def kube(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KubeProcess]:
    if request.config.getoption("--servers", default="embedded") != "both":
        pytest.skip("a Go program; run by `make conformance`")
    if not shutil.which("go"):
        pytest.skip("there is no Go here: client-go's informers were not tried")
    process = KubeProcess(tmp_path).start()
    yield process
    process.stop()


class Informer:
    """A Go program beside the real control plane, and what its caches hold; it prints one object for each of `holders`."""

    def __init__(self, name: str, kubeconfig: Path, log: Path) -> None:
        program = ensure_program(name)
        assert program
        kind = {"informer": [], "runtime": ["Widget"]}[name]
        self.holders = 1 + len(kind)
        command = [str(program), str(kubeconfig), GROUP, "v1", *kind, "widgets"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"), text=True
        )
        assert self._line() == "synced"

    def _line(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def held(self) -> list[dict[str, str]]:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [dict(self._line()) for _ in range(self.holders)]


def stored(kube: KubeProcess) -> dict[str, str]:
    """What the server holds, in the informer's words."""
    found = {}
    with client_of(kube) as client:
        for plural, path in (("configmaps", "/api/v1/configmaps"), ("widgets", f"/apis/{GROUP}/v1/widgets")):
            for item in client.get(path).json()["items"]:
                meta = item["metadata"]
                found[f"{plural}/{meta['namespace']}/{meta['name']}"] = meta["resourceVersion"]
    return found


def agree(informer: Informer, kube: KubeProcess) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (seen := informer.held()) != [wanted := stored(kube)] * informer.holders:
        apart = [set(one.items()) ^ set(wanted.items()) for one in seen]
        assert time.monotonic() < deadline, f"out of step: {apart}"
        time.sleep(0.1)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("program", ["informer", "runtime"])
def test_informers_stay_in_step_through_restarts(kube: KubeProcess, tmp_path: Path, program: str) -> None:
    with client_of(kube) as client:
        session = ApiSession(server_of("embedded", kube.kubeconfig), client, "informed")
        session.post(CRDS, WIDGETS)
        session.until(f"/apis/{GROUP}/v1/widgets", lambda reported: reported.code == 200)
        session.post("~configmaps", config_map("before"))
    informer = Informer(program, kube.kubeconfig, tmp_path / "informer.log")
    try:
        for turn in range(3):
            with client_of(kube) as client:
                session.client = client
                for i in range(5):
                    session.post("~configmaps", config_map(f"c{turn}-{i}"))
                    session.post(f"~{GROUP}/v1/widgets", widget(f"w{turn}-{i}"))
                session.patch(f"~configmaps/c{turn}-0", {"data": {"k": "other"}})
                session.delete(f"~{GROUP}/v1/widgets/w{turn}-1")
            if turn == 1:
                agree(informer, kube)
            kube.kill()
            kube.start()
            agree(informer, kube)
        assert informer.process.poll() is None
    finally:
        informer.process.kill()
        informer.process.wait()
