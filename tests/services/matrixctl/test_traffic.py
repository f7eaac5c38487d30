"""traffic and top on the command line: a load is offered to emulated nodes, and MatrixLink tells what moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from matrixcommon.model.hardware_names import NodeName
from services.chassis.app import create_app
from services.node_agent.access import ACCESS
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.fleet.store import FleetStore
from services.node_agent.main import all_routes
from services.node_agent.network.traffic_patterns import Load
from tests.matrixlink.fleet import NODES, LinkStack
from tests.matrixlink.test_emulated_traffic import make_table
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised


class InMemoryFleetStore(FleetStore):
    """What outlives the process, in this one: the client serves from a thread of its own, SQLite stays in one."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Any] = {}

    def all(self, kind: str) -> dict[str, Any]:
        return {name: body for (current, name), body in self.kept.items() if current == kind}

    def write(self, documents: Mapping[str, Mapping[str, Any]], gone: Iterable[tuple[str, str]] = ()) -> None:
        for key in gone:
            self.kept.pop(key, None)
        self.kept |= {(kind, name): body for kind, each in documents.items() for name, body in each.items()}


class CliHarness:
    """matrixctl before emulated nodes with a slice on them, and a MatrixLink that heard of a ring."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.stack = LinkStack(folder)
        asyncio.run(self._ring())
        self.memory = InMemoryFleetStore()
        self.fleet = Fleet([NodeName(name) for name in NODES], self.memory, self.stack.clock, 1)
        for name, node in self.fleet.nodes.items():
            node.tables["a-vpc"] = make_table(str(name), "vpc")
        app = create_app("agents", "Emulated nodes", all_routes(self.fleet, folder), ACCESS)
        self.clients = {"link": TestClient(self.stack.app), "agents": TestClient(app)}

    async def _ring(self) -> None:
        await self.stack.active()
        self.stack.traffic.put("ring", Load(slice="a-ub", pattern="ring", gbps_per_npu=14.0))
        for _ in range(2):
            self.stack.clock.at += 10
            await self.stack.report()

    def run(self, line: str) -> tuple[int, str, str]:
        return run_line_normalised(self.capsys, line)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CliHarness:
    made = CliHarness(tmp_path, capsys)

    connect_matrixctl(monkeypatch, made.clients)
    return made


def test_a_load_is_put_listed_kept_and_removed(harness: CliHarness) -> None:
    code, out, _ = harness.run("traffic put busy --slice a-vpc --pattern ring --gbps 10")
    assert (code, out) == (0, "4 members offer 320 GB/s; 200 get through")
    _, out, _ = harness.run("traffic list")
    assert "busy ring a-vpc 4 320 200 0" in out
    again = Fleet([NodeName(name) for name in NODES], harness.memory, harness.stack.clock, 1)
    assert again.traffic.loads == harness.fleet.traffic.loads, "it outlives the process"
    assert harness.run("traffic remove busy")[0] == 0
    assert json.loads(harness.run("traffic list -o json")[1]) == {"items": []}
    assert harness.memory.all("traffic") == {}


def test_each_of_two_loads_on_a_slice_shows_what_it_sends_itself(harness: CliHarness) -> None:
    harness.run("traffic put one --slice a-vpc --pattern ring --gbps 1")
    harness.run("traffic put three --slice a-vpc --pattern ring --gbps 3")
    rows = {each["name"]: each for each in json.loads(harness.run("traffic list -o json")[1])["items"]}
    assert {name: (each["offeredGbps"], each["sentGbps"]) for name, each in rows.items()} == {
        "one": (32, 32),
        "three": (96, 96),
    }
    assert "one ring a-vpc 4 32 32 0" in harness.run("traffic list")[1]
    harness.run("traffic put three --slice a-vpc --pattern ring --gbps 9")
    sent = [each["sentGbps"] for each in json.loads(harness.run("traffic list -o json")[1])["items"]]
    assert sum(sent) == pytest.approx(200), "together they fill the ports"
    assert 0 < sent[0] <= 32


def test_a_load_that_nobody_can_send_yet_says_so(harness: CliHarness) -> None:
    code, out, _ = harness.run("traffic put x --gbps 1 --instance nope --plane rdma")
    assert (code, out.split(";")[0]) == (0, "no member of instance 'nope' on rdma can send yet")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("traffic put x --gbps 10", "slice"),
        ("traffic put x --gbps 10 --slice a --instance b", "slice"),
        ("traffic put x --gbps 0 --slice a", "gbpsPerNpu"),
        ("traffic put x --gbps 1 --slice a --pattern star", "pattern"),
        ("traffic put x --gbps 1 --slice a --target sn0-c00-n0", "target"),
        ("traffic put x --gbps 1 --slice a --pattern incast --target sn0-c09-n0", "target"),
        ("traffic put X! --gbps 1 --slice a", "name"),
        ("traffic remove nothing", "name"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(harness: CliHarness, line: str, named: str) -> None:
    code, _, err = harness.run(line)
    assert code == 1
    assert f"field {named}" in err
    assert harness.fleet.traffic.loads == {}


def test_the_top_of_links_slices_and_the_fabric(harness: CliHarness) -> None:
    code, out, _ = harness.run("top slices")
    assert (code, "a-ub ub 448.00 448.00 0.00 12,544.00" in out) == (0, True)
    found = json.loads(harness.run("top links -n 3 -o json")[1])["items"]
    assert [item["utilisation"] for item in found] == [pytest.approx(1 / 28, abs=1e-3)] * 3
    assert "ub ub 448.00" in harness.run("top fabric plane")[1]
    code, _, err = harness.run("top fabric colour")
    assert (code, "field by" in err) == (1, True)
    assert harness.run("top links --filter plane=none")[1].startswith("there is no traffic")


def test_link_events_are_a_noun(harness: CliHarness) -> None:
    harness.stack.hardware[NODES[1]].tables.clear()
    asyncio.run(harness.stack.report())
    assert "a-ub TablesDrifted" in harness.run("get link-events")[1]
