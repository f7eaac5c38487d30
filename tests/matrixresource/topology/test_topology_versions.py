"""The history of the topology over REST and over restarts: what makes a version, what does not, and what is read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.model.errors import NotFound
from matrixcommon.persistence.database_session import Database
from matrixresource.contract.topology import SupernodeRequest
from matrixresource.machines import DEFAULT_FILE
from matrixresource.store.maintenance_domains import closed_cabinets
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base, NodeRow
from matrixresource.store.topology_versions import TopologyVersionRow, current_version, supernodes, topology_at
from matrixresource.supernodes.topology_manager import TopologyManager
from matrixresource.topology.loading import load_spec
from services.chassis.database import DatabaseEngine
from services.chassis.http import http_client
from services.resource.main import MIGRATIONS, ResourceSettings, build
from tests.clocks import FixedClock

DARK = {"ub-p3-k11": None}
WELL = {"ub-p3-k11": "sn0-l2p3-k11"}


class TopologyService:
    """MatrixResource over REST with a clock that stands, and its TopologyManager beside it; `restart` is another life."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.clock = FixedClock()
        self.restart()

    def restart(self, supernodes: int = 1) -> None:
        self.database = DatabaseEngine(f"sqlite:///{self.folder / 'resource.db'}")
        self.database.migrate(MIGRATIONS)
        app = build(ResourceSettings(state=self.folder, supernodes=supernodes), self.clock, self.database)
        self.http = http_client("http://resource", transport=httpx.ASGITransport(app))
        self.store = ResourceStore(Database(self.database.sessions, Base.metadata, self.clock))
        self.topology_manager = TopologyManager(self.store, self.clock, load_spec())

    async def call(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        answer = await self.http.request(method, f"/v1/{path}", json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def changes(self) -> list[list[tuple[str, str]]]:
        """By version, the oldest first, what it changed."""
        items = (await self.call("GET", "topology-versions"))["items"]
        assert [each["number"] for each in items] == list(range(1, len(items) + 1))
        assert [each["state"] for each in items] == ["Superseded"] * (len(items) - 1) + ["Current"]
        with self.store.reading() as session:
            assert items[-1]["name"] == current_version(session)
        return [[(change["kind"], change["part"]) for change in each["changes"]] for each in items]

    def report(self, ports: dict[str, str | None], *nodes: str) -> None:
        with self.store.transaction() as session:
            for node in nodes:
                self.topology_manager.observe(session, node, ports)

    def hold(self, node: str, by: str | None) -> None:
        with self.store.transaction() as session:
            self.store.node(session, node).holder = by


@pytest.fixture
def service(tmp_path: Path) -> TopologyService:
    return TopologyService(tmp_path)


async def test_a_cabinet_is_closed_and_opened(service: TopologyService) -> None:
    first = (await service.call("GET", "topology-versions/current"))["name"]
    service.hold("sn0-c03-n2", "job")
    assert (await service.call("POST", "domains/sn0-c03:close?validateOnly=true"))["state"] == "Closed"
    assert (await service.call("GET", "domains/sn0-c03"))["state"] == "Open"
    view = await service.call("POST", "domains/sn0-c03:close?drain=true", {"reason": "new pump"})
    assert (view["state"], view["allocations"], view["reason"], view["by"]) == (
        "Draining",
        ["job"],
        "new pump",
        "anyone",
    )
    assert (await service.call("POST", "domains/sn0-c03:close?drain=true"))["etag"] == view["etag"]
    await service.call("POST", "domains/sn0-c03:open", status=412, **{"If-Match": '"1"'})
    with service.store.reading() as session:
        assert closed_cabinets(session) == {"sn0-c03"}
        assert session.get(NodeRow, "sn0-c03-n2").holder == "job"  # type: ignore[union-attr]
    service.restart()
    service.hold("sn0-c03-n2", None)
    assert service.topology_manager.finish_drains() == ["sn0-c03"]
    assert service.topology_manager.finish_drains() == []
    listed = (await service.call("GET", "domains?filter=state!=Open"))["items"]
    assert [(each["name"], each["state"], each["allocations"]) for each in listed] == [("sn0-c03", "Drained", [])]
    again = await service.call("POST", "domains/sn0-c03:close?drain=true")
    assert again["etag"] == listed[0]["etag"]
    reported = [json.loads(change.body)["state"] for change in service.store.records.changes_since("domain", 0)]
    assert reported[-2:] == ["Draining", "Drained"]
    await service.call("POST", "domains/sn0:close")
    with service.store.reading() as session:
        assert closed_cabinets(session) == {f"sn0-c{c:02d}" for c in range(12)}
    for name in ("sn0", "sn0-c03"):
        await service.call("POST", f"domains/{name}:open")
    await service.call("POST", "domains/sn0-c77:close", status=404)
    assert await service.changes() == [
        [("SupernodeAdded", "sn0")],
        [("DomainClosed", "sn0-c03")],
        [("DomainClosed", "sn0")],
        [("DomainOpened", "sn0")],
        [("DomainOpened", "sn0-c03")],
    ]
    last = (await service.call("GET", "topology-versions/current"))["name"]
    assert last != first
    assert last.partition("-")[2] == first.partition("-")[2]


async def test_supernodes_come_and_go(service: TopologyService) -> None:
    would_be = await service.call("PUT", "supernodes/sn1?validateOnly=true", {})
    assert (would_be["nodes"], would_be["npus"]) == (48, 384)
    view = await service.call("PUT", "supernodes/sn1", {"labels": {"hall": "b"}})
    assert (view["nodes"], view["labels"]) == (48, {"hall": "b"})
    assert (await service.call("PUT", "supernodes/sn1", {}))["etag"] == view["etag"]
    smaller = yaml.safe_load(DEFAULT_FILE.read_text())
    faster = yaml.safe_load(DEFAULT_FILE.read_text())
    faster["node"]["vpc_gbps"]["value"] *= 2
    smaller["node"]["dram_gib"]["value"] //= 2
    assert (await service.call("PUT", "supernodes/sn2", {"spec": smaller}, 422))["field"] == "spec.node.dram_gib"
    smaller["node"]["npus"]["value"] = 4
    assert (await service.call("PUT", "supernodes/sn2", {"spec": smaller}, 422))["field"].startswith("spec.")
    assert (await service.call("PUT", "supernodes/sn1", {"spec": faster}, 409))["field"] == "spec"
    for name in ("sn02", "sn99999", "rack"):
        assert (await service.call("PUT", f"supernodes/{name}", {}, 422))["field"] == "name"
    await service.call("PUT", "supernodes/sn10", {"spec": faster})
    service.hold("sn1-c00-n0", "job")
    refused = await service.call("DELETE", "supernodes/sn1", status=409)
    assert refused["blocking"] == [{"domain": "sn1", "allocations": ["job"]}]
    service.hold("sn1-c00-n0", None)
    with service.store.transaction() as session:
        desired = next(row for row in service.store.assignments(session) if row.name == "sn1-c00-n0")
        desired.generation = 7
    await service.call("POST", "domains/sn1-c02:close")
    await service.call("DELETE", "supernodes/sn1", status=204)
    await service.call("DELETE", "supernodes/sn1", status=404)
    service.restart(supernodes=4)  # settings only seed an empty database
    assert [each["name"] for each in (await service.call("GET", "supernodes"))["items"]] == ["sn0", "sn10"]
    assert len((await service.call("GET", "nodes"))["items"]) == 96
    with service.store.reading() as session:
        rates = {name: supernode.spec.node.vpc_gbps for name, supernode in supernodes(session).items()}
        assert rates["sn10"] == 2 * rates["sn0"] == faster["node"]["vpc_gbps"]["value"]
    await service.call("PUT", "supernodes/sn1", {})
    assert (await service.call("GET", "nodes/sn1-c00-n0"))["assignmentGeneration"] == 7
    assert await service.changes() == [
        [("SupernodeAdded", "sn0")],
        [("SupernodeAdded", "sn1")],
        [("SupernodeAdded", "sn10")],
        [("DomainClosed", "sn1-c02")],
        [("SupernodeRemoved", "sn1"), ("DomainOpened", "sn1-c02")],
        [("SupernodeAdded", "sn1")],
    ]


async def test_a_failed_switch_is_one_version_and_old_ones_are_read_back(service: TopologyService) -> None:
    nodes = [row["name"] for row in (await service.call("GET", "nodes"))["items"]]
    with service.store.transaction() as session:
        for row in service.store.nodes(session):
            row.agent = "Connected"
    service.report(WELL, *nodes)
    for node in nodes:  # reported one by one, while the machine continues, with a restart in the middle
        service.clock.at += 0.5
        service.report(DARK, node)
        assert service.topology_manager.reconcile() is None
        if node == nodes[20]:
            service.restart()
    service.clock.at += 60
    failed = service.topology_manager.reconcile()
    assert failed is not None
    service.restart()
    assert service.topology_manager.reconcile() is None
    service.report(WELL, *nodes)
    service.clock.at += 60
    repaired = service.topology_manager.reconcile()
    assert await service.changes() == [
        [("SupernodeAdded", "sn0")],
        [("SwitchFailed", "sn0-l2p3-k11")],
        [("SwitchRepaired", "sn0-l2p3-k11")],
    ]
    assert (await service.call("GET", "supernodes/sn0"))["topologyVersion"] == repaired
    for version, there in ((failed, False), (repaired, True), (None, True)):
        query = f"?version={version}" if version else ""
        document = await service.call("GET", f"supernodes/sn0/topology{query}")
        assert any(each["id"] == "sn0-l2p3-k11" for each in document["graph"]["nodes"]) is there
        assert document["topologyVersion"] == (version or repaired)
    refused = await service.call("GET", "supernodes/sn0/topology?version=v9-000000000000", status=404)
    assert (refused["field"], refused["detail"]) == ("version", "there is no topology version 'v9-000000000000'")


async def test_a_flapping_port_makes_no_version_and_keeps_no_other_back(service: TopologyService) -> None:
    for beat in range(30):
        service.clock.at += 10
        service.report(DARK if beat % 2 else WELL, "sn0-c00-n0")
        if beat == 3:
            service.report({"ub-p0-k00": "sn0-l2p0-k01", "no-such-port": None}, "sn0-c00-n1")
        service.topology_manager.reconcile()
    assert await service.changes() == [[("SupernodeAdded", "sn0")], [("CableMoved", "sn0-c00-n1.ub-p0-k00")]]
    with service.store.reading() as session:
        assert [each.peer for each in topology_at(session).deviations] == ["sn0-l2p0-k01"]


class Killed(BaseException):
    """The process ends here."""


def test_a_crash_at_any_commit_leaves_one_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each verb is killed just before its commit, then just after it, then asked a third time by who never heard."""
    reported, killed = TopologyService(tmp_path / "told"), TopologyService(tmp_path / "killed")
    life: list[Callable[[TopologyService], object]] = [
        lambda service: service.topology_manager.ensure_supernode("sn1", SupernodeRequest(), by="me"),
        lambda service: service.topology_manager.close("sn0-c03", by="me", drain=True),
        lambda service: service.report(DARK | {"ub-p0-k00": "sn0-l2p0-k01"}, "sn0-c00-n0"),
        lambda service: service.topology_manager.reconcile(),
        lambda service: service.topology_manager.open("sn0-c03", by="me"),
        lambda service: service.topology_manager.close("sn1", by="me"),
        lambda service: service.topology_manager.remove_supernode("sn1", by="me"),
    ]
    for action in life:
        action(reported)
        for after in (False, True):
            with monkeypatch.context() as patch, suppress(Killed, NotFound):
                patch.setattr(Session, "commit", killing(Session.commit, after))
                action(killed)
            killed.restart()
        with suppress(NotFound):  # what was removed already
            action(killed)
        reported.clock.at += 60
        killed.clock.at += 60
    assert history(killed) == history(reported)
    assert len(history(reported)) == 7


def killing(commit: Callable[[Session], None], after: bool) -> Callable[[Session], None]:
    def killed(session: Session) -> None:
        if after:
            commit(session)
        raise Killed

    return killed


def history(service: TopologyService) -> list[tuple[str, Any]]:
    with service.store.reading() as session:
        return [
            (row.name, row.changes)
            for row in session.scalars(select(TopologyVersionRow).order_by(TopologyVersionRow.number))
        ]
