"""matrixctl topology: the graph of a supernode asked, printed, checked and given back, against MatrixResource
itself."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest
from starlette.testclient import TestClient

from matrixresource.topology import Supernode
from matrixresource.topology.observed_graph import node_link
from services.chassis.database import DatabaseEngine
from services.resource.main import MIGRATIONS, ResourceSettings, build
from tests.clocks import FixedClock
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line, run_matrixctl

CABLE = "sn0-c03-n2.ub-p3-k11"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TestClient:
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'resource.db'}")
    database.migrate(MIGRATIONS)
    client = TestClient(build(ResourceSettings(state=tmp_path), FixedClock(), database))
    connect_matrixctl(monkeypatch, {"resource": client})
    return client


def drawn(folder: Path, **changed: object) -> Path:
    """The supernode in a file, one link otherwise (or left out)."""
    document = node_link(Supernode().model_graph())
    edges = document["edges"]
    edge = next(each for each in edges if each.get("name") == CABLE)
    if changed:
        edge.update(changed)
    else:
        edges.remove(edge)
    file = folder / "drawn.json"
    file.write_text(json.dumps(document))
    return file


def answered(capsys: pytest.CaptureFixture[str], line: str) -> dict:
    code, out, err = run_matrixctl(capsys, *line.split(), "-o", "json")
    assert code == 0, err
    return json.loads(out)


def test_ways_neighbours_cuts_and_the_bisection(here: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, "topology path sn0-c03-n2 sn0-c07-n1 --plane ub")
    assert (len(found["parts"]), found["ways"], found["gbps"]) == (5, 112, 28)
    code, text = run_line(capsys, "topology path sn0-c03-n2 sn0-c07-n1 --plane vpc")
    assert code == 0
    assert text.split() [:4] == ["sn0-c03-n2-qingtian", "|", "sn0-c03-n2.vpc", "sn0-fabric"]  # fmt: skip
    found = answered(capsys, "topology neighbours sn0-l2p3-k11")
    assert (len(found["items"]), {each["kind"] for each in found["items"]}) == (48, {"l1"})
    outside = answered(capsys, "topology neighbours sn0-c03-n2 --plane ub")
    assert len(outside["items"]) == 112
    assert answered(capsys, "topology cut sn0-c03-n2 sn0-c07-n1 --plane ub")["gbps"] == 3136
    assert answered(capsys, "topology cut sn0-c03-n2-npu0 sn0-c07-n1-npu3 --plane ub")["gbps"] == 392
    assert answered(capsys, "topology bisection")["gbps"] == 75_264
    assert answered(capsys, "topology bisection sn0 --plane vpc")["gbps"] == 1200


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("topology path sn0-c03-n2 sn0-c99-n1", "NotFound"),
        ("topology path sn0-c03-n2 sn0-c03-n2", "InvalidField"),
        ("topology path sn0-c03-n2 sn0-c07-n1 --plane ib", "InvalidField"),
        ("topology neighbours sn0-c99", "NotFound"),
        ("topology bisection sn9", "NotFound"),
        ("topology export --format svg", "InvalidField"),
        ("topology check nowhere.json", "InvalidField"),
    ],
)
def test_what_is_not_there_is_one_line(
    here: TestClient, capsys: pytest.CaptureFixture[str], line: str, reason: str
) -> None:
    code, text = run_line(capsys, line)
    assert code != 0
    assert reason in text
    assert "Traceback" not in text


def test_what_is_exported_is_read_back(here: TestClient, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for form, file in (("json", tmp_path / "sn0.json"), ("graphml", tmp_path / "sn0.graphml")):
        code, text, _ = run_matrixctl(capsys, "topology", "export", "sn0", "--format", form)
        assert code == 0
        file.write_text(text)
        code, text = run_line(capsys, f"topology check {file}")
        assert (code, "48 nodes, 13488 links, regular wiring" in text) == (0, True)
    assert nx.read_graphml(tmp_path / "sn0.graphml").number_of_nodes() == 1553
    assert answered(capsys, f"topology path sn0-c00-n0 sn0-c00-n1 --plane ub --file {tmp_path / 'sn0.json'}")["ways"]


def test_a_drawn_supernode_is_checked_added_and_drawn_anew(
    here: TestClient, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = drawn(tmp_path, capacity_gbps=56.0)
    sentence = f"{CABLE} is drawn at 56.0 GB/s; l1-l2 of the ub plane has 28"
    assert run_line(capsys, f"topology check {bad}") == (1, f"{sentence}\n")
    code, text = run_line(capsys, f"supernode add sn1 --file {bad} --no-hardware")
    assert (code, sentence in text) == (1, True)
    assert len(here.get("/v1/supernodes").json()["items"]) == 1
    moved = drawn(tmp_path, target="sn0-l2p3-k12")
    assert answered(capsys, f"topology check {moved}")["deviations"] == [
        {"kind": "CableMoved", "part": CABLE.removeprefix("sn0-"), "peer": "l2p3-k12"}
    ]
    assert run_line(capsys, f"supernode add sn0 --file {moved} --no-hardware")[0] == 0
    assert run_line(capsys, f"supernode add sn0 --file {moved} --no-hardware")[0] == 0, "asked twice it is the same"
    versions = here.get("/v1/topology-versions").json()["items"]
    assert [[change["kind"] for change in each["changes"]] for each in versions] == [
        ["SupernodeAdded"],
        ["SupernodeRedrawn"],
    ]
    assert len(answered(capsys, "topology neighbours sn0-l2p3-k11")["items"]) == 47
    assert answered(capsys, "topology cut sn0-c03-n2 sn0-c07-n1 --plane ub")["gbps"] == 3136
    dark = drawn(tmp_path)
    assert run_line(capsys, f"supernode add sn1 --file {dark} --no-hardware")[0] == 0
    assert answered(capsys, "topology cut sn1-c03-n2 sn1-c07-n1 --plane ub")["gbps"] == 3108
