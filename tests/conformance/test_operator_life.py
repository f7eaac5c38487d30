"""The operator, unchanged, on the embedded API and on a real one: its users see the same life on both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.operator_life import Life
from tests.e2e.operator_process import OperatorProcess, services_up
from tests.e2e.realkube.build import missing_parts
from tests.e2e.realkube.control_plane import RealKube
from tests.e2e.test_kube_durability import client_of
from tests.matrixcontainer.kubeapi.process import KubeProcess


@pytest.fixture
def both(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--servers", default="embedded") != "both":
        pytest.skip("starts a real control plane; run by `make conformance`")
    if missing := missing_parts():
        pytest.fail(missing)


def lived(client: httpx.Client, kubeconfig: Path, folder: Path) -> dict[str, Any]:
    """What the user of that API saw of one life."""
    folder.mkdir()
    with services_up(folder / "state") as services, OperatorProcess(services, kubeconfig, folder) as operator:
        seen = Life(client, operator.reported).live()
        assert not [line for line in operator.reported().splitlines() if "Traceback" in line or "orbidden" in line]
    return seen


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("both")
def test_a_life_is_the_same_on_both_servers(tmp_path: Path) -> None:
    ours = KubeProcess(tmp_path / "embedded").start()
    try:
        with client_of(ours) as client:
            embedded = lived(client, ours.state / "kubeconfig-operator", tmp_path / "on-embedded")
    finally:
        ours.stop()
    with RealKube(tmp_path / "real", grace_s=15) as kube, kube.client() as client:
        real = lived(client, kube.kubeconfig, tmp_path / "on-real")
    assert embedded["states of the instance"] == [
        "Provisioning", "Active", "Repairing", "Active", "Updating", "Active", "Updating", "Active",
        "Deleting", "gone",
    ]  # fmt: skip
    differ = {what: (seen, real.get(what)) for what, seen in embedded.items() if seen != real.get(what)}
    assert not differ, json.dumps(differ, indent=1)
    assert embedded.keys() == real.keys()
