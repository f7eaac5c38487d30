"""The operator, unchanged, on the embedded API and on a real one: its users see the same life on both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.namespaces_life import TwoNamespaces
from tests.conformance.operator_life import Life
from tests.e2e.kube.test_kube_durability import client_of
from tests.e2e.operator.operator_process import OperatorProcess, services_up
from tests.e2e.realkube.build import missing_parts
from tests.e2e.realkube.control_plane import RealKube
from tests.matrixcontainer.kubeapi.process import KubeProcess


@pytest.fixture
def both(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--servers", default="embedded") != "both":
        pytest.skip("starts a real control plane; run by `make conformance`")
    if missing := missing_parts():
        pytest.fail(missing)


def lived(life: type[Life], client: httpx.Client, kubeconfig: Path, folder: Path) -> dict[str, Any]:
    """What the user of that API saw of one life."""
    folder.mkdir()
    with services_up(folder / "state") as services, OperatorProcess(services, kubeconfig, folder) as operator:
        seen = life(client, operator.reported).live()
        assert not [line for line in operator.reported().splitlines() if "Traceback" in line or "orbidden" in line]
    return seen


def on_both(life: type[Life], tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was seen of a life on the embedded API, and on a real one."""
    ours = KubeProcess(tmp_path / "embedded").start()
    try:
        with client_of(ours) as client:
            embedded = lived(life, client, ours.state / "kubeconfig-operator", tmp_path / "on-embedded")
    finally:
        ours.stop()
    with RealKube(tmp_path / "real", grace_s=15) as kube, kube.client() as client:
        return embedded, lived(life, client, kube.kubeconfig, tmp_path / "on-real")


def assert_the_same(embedded: dict[str, Any], real: dict[str, Any]) -> None:
    differ = {what: (seen, real.get(what)) for what, seen in embedded.items() if seen != real.get(what)}
    assert not differ, json.dumps(differ, indent=1)
    assert embedded.keys() == real.keys()


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("both")
def test_a_life_is_the_same_on_both_servers(tmp_path: Path) -> None:
    embedded, real = on_both(Life, tmp_path)
    assert embedded["states of the instance"] == [
        "Provisioning", "Active", "Repairing", "Active", "Updating", "Active", "Updating", "Active",
        "Deleting", "gone",
    ]  # fmt: skip
    assert_the_same(embedded, real)


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("both")
def test_two_namespaces_hold_what_is_called_alike_on_both_servers(tmp_path: Path) -> None:
    assert_the_same(*on_both(TwoNamespaces, tmp_path))
