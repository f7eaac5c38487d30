"""`matrixctl up --topology`: a stack whose supernode is as somebody drew it; a faulty drawing starts nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrixresource.topology import Supernode
from matrixresource.topology.observed_graph import node_link
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import stop_stack
from tests.services.matrixctl.inprocess import run_matrixctl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

NODE = "sn0-c00-n0"
CABLE, L1, L2 = f"{NODE}.ub-p3-k11", f"{NODE}-l1p3", "sn0-l2p3-k11"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    stop_stack(StateFolder(tmp_path / "state"))


def drawing(file: Path, without: str) -> Path:
    """The published supernode without one cable, or without one vertex and with the cables that led there."""
    document = node_link(Supernode().model_graph())
    document["edges"] = [edge for edge in document["edges"] if edge.get("name") != without]
    document["nodes"] = [vertex for vertex in document["nodes"] if vertex["id"] != without]
    file.write_text(json.dumps(document))
    return file


def test_the_supernode_is_as_it_was_drawn(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = drawing(tmp_path / "drawn.json", CABLE)
    code, _, err = run_matrixctl(capsys, "up", "--state", str(state), "--only", "resource", "--topology", str(file))
    assert code == 0, err
    for part, far in ((L1, L2), (L2, L1)):
        code, out, err = run_matrixctl(capsys, "topology", "neighbours", part, "--state", str(state), "-o", "json")
        assert code == 0, err
        found = {each["name"] for each in json.loads(out)["items"]}
        assert far not in found
        assert len([each for each in found if "-l1p" in each or "-l2p" in each]) == {L1: 15, L2: 47}[part]


def test_a_faulty_drawing_starts_nothing(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = drawing(tmp_path / "drawn.json", L2)
    code, _, err = run_matrixctl(capsys, "up", "--state", str(state), "--only", "resource", "--topology", str(file))
    assert code == 1
    assert f"{CABLE} dangles: it leads from {L1} to {L2}, which is not drawn" in err
    assert not state.exists()
