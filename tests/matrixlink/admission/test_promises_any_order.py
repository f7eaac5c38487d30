"""Any sequence of admissions, withdrawals, faults, drains, silence, restarts and repairs, drawn by Hypothesis and shrunk
where it fails. After every step: no link's floors exceed what it has, no route crosses a dead or drained element, what
is Drained is crossed by no agent's tables, no two tenants share a partition. With everything repaired and put back the
routes are the first ones, and every floor is whole and protected."""

import asyncio
import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import select
from starlette.testclient import TestClient

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.link_health.flap_damping import Damping
from matrixlink.routing.routing import choose_routes
from matrixlink.slices.programs import program_bodies
from matrixlink.store.tables import DrainRow, FenceRow, PeeringRow, ProgramRow, SliceRow
from matrixresource.topology import Supernode
from tests.matrixlink.fleet import NODES, LinkStack, slice_request
from tests.matrixlink.machine import overcommitted_links

NAMES = ["a-ub", "b-ub", "c-ub", "d-rdma", "e-vpc"]
PORTS = ["ub-p0-k00", "ub-p3-k11", "npu5-die1-p2", "rdma-npu5-die0", "rdma-npu5-die1", "vpc"]
ELEMENTS = ["sn0-l2p3-k11", f"{NODES[0]}.ub-p0", f"{NODES[1]}-l1p2", "sn0-c00-leaf0", f"{NODES[2]}.vpc", "sn0-ub-p6"]
FLOORS = {"ub": 392.0, "rdma": 50.0, "vpc": 6.25}
LEVELS = {"ub": ["none", "anyL2Chip", "anySubPlane"], "rdma": ["none", "disjointPath"], "vpc": ["none"]}


class FakeAgent:
    """A node's agent that does at once what it is reported, or is silent and keeps what it has."""

    def __init__(self, node):
        self.node, self.sequence, self.ports, self.tables = node, 0, {}, {}

    def report(self):
        self.sequence += 1
        current = [
            {"slice": name, "generation": generation, "status": "Programmed" if body else "Cleared"}
            for name, (generation, body) in sorted(self.tables.items())
        ]
        ports = [{"port": port, "gbps": gbps} for port, gbps in sorted(self.ports.items())]
        reported = {"node": self.node, "epoch": 1, "sequence": self.sequence, "leaseSeconds": 30.0}
        return reported | {"programs": current, "ports": ports}

    def obey(self, desired):
        for each in desired:
            if each["action"] == "clear":
                self.tables[each["slice"]] = (each["generation"], None)
            elif each.get("program"):
                assert each["generation"] >= self.tables.get(each["slice"], (0,))[0], "never an older generation"
                self.tables[each["slice"]] = (each["generation"], each["program"])
        spec = {each["slice"] for each in desired}
        for name in [n for n, (_, body) in self.tables.items() if body is None and n not in spec]:
            del self.tables[name]


def dead_links_used(node, body, bad):
    """The links among `bad` (node or leaf, port) that a program sends over, its peerings' among them."""
    ways = [body, *({"plane": body["plane"], **each} for each in body.get("peerings", ()))]
    return set().union(*(links_used(node, way, bad) for way in ways))


def links_used(node, body, bad):
    """The same for one set of routes, read off stripe by stripe."""
    plane, peers, base, detours = body["plane"], body["peers"], body["stripes"], body["detours"]
    used = set()
    for peer in peers:
        for stripe in detours.get(peer, base):
            here, p = stripe["weight"] > 0, stripe.get("subPlane", stripe.get("sub_plane"))
            if plane == "vpc" and here:
                used.add((node, "vpc"))
            if plane == "ub":
                spread = stripe["spread"] or [1] * 16
                used |= {(end, f"ub-p{p}-k{k:02d}") for k, share in enumerate(spread) if share for end in (node, peer)}
    for npu in range(8):
        for die in range(2) if plane == "ub" else ():
            at = f"npu{npu}-die{die}"
            ways = [(node, detours.get(at, base))]
            ways += [(peer, detours.get(f"{peer}-{at}", detours.get(peer, base))) for peer in peers]
            used |= {(end, f"{at}-p{s.get('subPlane', s.get('sub_plane'))}") for end, way in ways for s in way}
        if plane == "rdma":
            ways = [(node, detours.get(f"npu{npu}", base))]
            ways += [(peer, detours.get(f"{peer}-npu{npu}", detours.get(peer, base))) for peer in peers]
            used |= {
                (end, f"rdma-npu{npu}-die{s.get('subPlane', s.get('sub_plane'))}") for end, way in ways for s in way
            }
    return used & bad


class AnyOrderMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stack = LinkStack(Path(self.folder.name))
        self.agents = {node: FakeAgent(node) for node in NODES}
        self.silent = set()
        self.connect()

    def teardown(self):
        self.stack.database.close()
        self.folder.cleanup()

    def connect(self):
        self.http = TestClient(self.stack.app)
        self.board = self.stack.slice_controller()

    def put(self, path, body):
        answer = self.http.put(path, json=body)
        assert answer.status_code in (200, 409), answer.text
        return answer

    # -- actions --------------------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        members=st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True),
        part=st.sampled_from([0.0, 0.2, 0.45, 0.8, 1.0]),
        level=st.integers(0, 2),
        project=st.sampled_from(["red", "blue"]),
    )
    def request(self, name, members, part, level, project):
        plane = name.split("-")[1]
        levels = LEVELS[plane] if part else ["none"]
        request = slice_request(
            plane, members, instance=name, project=project, qos_class="Burstable",
            floor_gbps_per_npu=FLOORS[plane] * part, protection=levels[level % len(levels)],
        )  # fmt: skip
        if self.put(f"/v1/slices/{name}", request.wire()).status_code == 200:
            self.http.post(f"/v1/slices/{name}:program", params={"project": project})

    @rule(name=st.sampled_from(NAMES), project=st.sampled_from(["red", "blue"]))
    def withdraw(self, name, project):
        self.http.delete(f"/v1/slices/{name}", params={"project": project})

    @rule(node=st.sampled_from(NODES), lost=st.dictionaries(st.sampled_from(PORTS), st.sampled_from([0.0, 6.25])))
    def break_or_repair(self, node, lost):
        self.agents[node].ports = lost
        self.report()

    @rule(name=st.sampled_from(["d1", "d2"]), elements=st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=2),
          even=st.booleans())  # fmt: skip
    def drain(self, name, elements, even):
        self.put(f"/v1/drains/{name}", {"elements": elements, "evenIfFloorsBreak": even})

    @rule(name=st.sampled_from(["d1", "d2"]))
    def put_back(self, name):
        self.http.delete(f"/v1/drains/{name}")

    @rule(name=st.sampled_from(["p1", "p2"]), slices=st.lists(st.sampled_from(NAMES[:3]), min_size=2, max_size=2,
          unique=True), project=st.sampled_from(["red", "blue"]))  # fmt: skip
    def peer(self, name, slices, project):
        answer = self.http.put(f"/v1/peerings/{name}", json={"project": project, "slices": slices})
        assert answer.status_code in (200, 409, 422), answer.text
        answer = self.http.post(f"/v1/peerings/{name}:accept", json={"project": "blue"})
        assert answer.status_code in (200, 403, 404, 409), answer.text

    @rule(name=st.sampled_from(["p1", "p2"]))
    def part(self, name):
        self.http.delete(f"/v1/peerings/{name}")

    @rule(node=st.sampled_from(NODES))
    def fall_silent_or_speak(self, node):
        self.silent ^= {node}

    @rule(passed=st.sampled_from([1, 40, 100]))
    def time_passes(self, passed):
        self.stack.clock.at += passed
        self.board.reconcile_all()

    @rule()
    def restart(self):
        self.stack.database.close()
        self.stack.restart()
        self.connect()

    @rule()
    def report(self):
        """Everybody who speaks reports and obeys; then the watcher comes round."""
        speaking = [agent for node, agent in self.agents.items() if node not in self.silent]
        answer = self.http.post("/v1/link-reports", json={"reports": [agent.report() for agent in speaking]})
        for agent, reported in zip(speaking, answer.json()["answers"], strict=True):
            assert reported["accepted"], reported
            agent.obey(reported["desired"])
        self.board.reroute()
        self.board.reconcile_all()
        asyncio.run(self.carried())

    async def carried(self):
        """Workflows get as far as they can in one life of the runner."""
        await self.stack.carry()
        await self.stack.runner.stop()

    @rule()
    def repair_everything(self):
        """All ports whole for as long as one that kept going down is held, all drains gone, everybody speaks: the first
        routes are back, and all floors."""
        self.silent.clear()
        for agent in self.agents.values():
            agent.ports = {}
        for name in ("d1", "d2"):
            self.http.delete(f"/v1/drains/{name}")
        self.report()
        self.stack.clock.at += Damping().hold_max_s
        asyncio.run(self.stack.health.step())
        for _ in range(4):
            self.report()
        pristine = Fabric([Supernode()])
        with self.board.store.reading() as session:
            for row in session.scalars(select(SliceRow)):
                assert (row.state, row.kept, row.unprotected) == ("Active", 1.0, ""), row.view()
                first = program_bodies(row, choose_routes(pristine, Plane(row.plane), row.members), 8)
                for node, body in first.items():
                    generation, current = self.agents[node].tables[row.name]
                    assert generation == row.generation
                    assert current["peerings"] == [] or row.name in self.board.promises.peered_members
                    for key in ("peers", "detours"):
                        assert current[key] == json.loads(json.dumps(body[key]))
                    assert [(s["subPlane"], s["weight"]) for s in current["stripes"]] == [
                        (s["sub_plane"], s["weight"]) for s in body["stripes"]
                    ]

    # -- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def no_link_is_promised_beyond_what_it_has(self):
        assert overcommitted_links(self.board.promises.ledger) == []
        assert overcommitted_links(self.board.promises.healthy_ledger) == []

    @invariant()
    def no_route_crosses_what_is_dead_or_drained(self):
        fabric = self.board.fabric
        bad = {(o, port) for o in fabric.touched() for port, gbps in fabric.unavailable_ports(o).items() if gbps <= 0}
        with self.board.store.reading() as session:
            asked = {
                row.name for row in session.scalars(select(SliceRow)) if row.state not in ("Admitted", "Withdrawing")
            }
            for program in session.scalars(select(ProgramRow).where(ProgramRow.action == "program")):
                if program.slice in asked:
                    assert dead_links_used(program.node, program.body, bad) == set(), program.name

    @invariant()
    def what_is_drained_is_crossed_by_nobody(self):
        with self.board.store.reading() as session:
            alive = {row.name for row in session.scalars(select(SliceRow))}
            for drain in session.scalars(select(DrainRow).where(DrainRow.state == "Drained")):
                out = {(owner, port) for owner, ports in drain.ports.items() for port in ports}
                for node, agent in self.agents.items():
                    for name, (_, body) in agent.tables.items():
                        if body and name in alive:
                            assert dead_links_used(node, body, out) == set(), (drain.name, node, name)

    @invariant()
    def no_two_tenants_share_a_partition(self):
        with self.board.store.reading() as session:
            rows = [(row.isolation, row.isolation_key, row.name) for row in session.scalars(select(SliceRow))]
            fences = [(row.isolation, row.isolation_key, row.slice) for row in session.scalars(select(FenceRow))]
        keys = {(isolation, key): name for isolation, key, name in rows}
        assert len(keys) == len(rows)
        for isolation, key, name in fences:
            assert keys.get((isolation, key), name) == name
        holders = {}
        for agent in self.agents.values():
            for name, (_, body) in agent.tables.items():
                if body:
                    holder = holders.setdefault((body["isolation"], body["isolationKey"]), name)
                    assert holder == name
                    for each in body["peerings"]:
                        sides = holders.setdefault((body["isolation"], each["isolationKey"]), (each["name"], set()))
                        assert sides[0] == each["name"]
                        sides[1].update([name, each["slice"]])
        assert all(len(sides[1]) == 2 for sides in holders.values() if isinstance(sides, tuple))

    @invariant()
    def nobody_is_asked_to_reach_a_slice_without_its_owners_consent(self):
        with self.board.store.reading() as session:
            projects = {row.name: row.project for row in session.scalars(select(SliceRow))}
            peerings = {row.name: row for row in session.scalars(select(PeeringRow))}
            for program in session.scalars(select(ProgramRow).where(ProgramRow.action == "program")):
                for each in program.body.get("peerings", ()):
                    row = peerings[each["name"]]
                    if row.state in ("Programming", "Active"):
                        assert {projects[name] for name in row.slices} <= set(row.accepted_by)
                    assert row.state != "PendingAcceptance"


TestAnyOrder = AnyOrderMachine.TestCase
TestAnyOrder.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
