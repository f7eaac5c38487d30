"""Routes to peers that are kept are those that would be worked out, and memory of peerings is what their rows say, after
whatever has changed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import project_of
from matrixlink.contract.drains import DrainRequest
from matrixlink.contract.peerings import PeeringRequest
from matrixlink.contract.slices import SliceRequest
from matrixlink.peering import peer_routes as peer_routes_module
from matrixlink.routing.routing import choose_routes
from matrixlink.slices.programs import routes_body
from matrixlink.store.tables import PEERED, PROGRAMMING_PEERS
from matrixresource.topology import Supernode
from matrixresource.topology.compiled import compile_with_deviations
from matrixresource.topology.deviations import Deviation
from tests.matrixlink.machine import LinkMachine, ObedientAgent

NODES = [f"sn0-c{cabinet:02d}-n{node}" for cabinet in range(3) for node in range(4)]
NAMES = {
    plane: [f"red/a-{plane}", f"red/b-{plane}", f"blue/c-{plane}", f"blue/d-{plane}", f"blue/e-{plane}"]
    for plane in map(str, Plane)
}
LOST: list[dict[str, float]] = [
    {}, {"ub-p3-k11": 0.0}, {"ub-p3-k11": 14.0, "rdma-npu5-die0": 0.0}, {"npu5-die1-p2": 0.0}, {"vpc": 0.0},
    {"rdma-npu2-die1": 0.0},
]  # fmt: skip
ELEMENTS = ["sn0-l2p3-k11", f"{NODES[0]}.ub-p0", "sn0-c00-leaf0"]


@pytest.fixture
def machine(tmp_path):
    made = LinkMachine(tmp_path)
    yield made
    made.close()


def create_slice(name: str, members: list[str]) -> SliceRequest:
    plane, project = name.rpartition("-")[2], project_of(name)
    about = {"allocation": name, "instance": name, "project": project, "plane": plane, "qosClass": "BestEffort"}
    return SliceRequest.model_validate(about | {"members": members})


def create_peering(one: str, other: str) -> PeeringRequest:
    return PeeringRequest.model_validate({"slices": [one, other], "project": project_of(one)})


class RandomHistory:
    """Whatever may be asked of MatrixLink, drawn by seed."""

    def __init__(self, machine: LinkMachine, plane: str, seed: int) -> None:
        self.machine, self.chance = machine, random.Random(seed)
        self.agents = {node: ObedientAgent(node) for node in NODES}
        self.plane = plane
        self.peerings = [f"p{at}" for at in range(6)]
        for name in NAMES[self.plane]:
            machine.board.admit(name, create_slice(name, self.chance.sample(NODES, 2)))
            machine.board.program(name)

    def step(self) -> None:
        chance, (name, other) = self.chance, self.chance.sample(NAMES[self.plane], 2)
        peering, board, peerings = chance.choice(self.peerings), self.machine.board, self.machine.peerings
        match chance.randrange(11):
            case 0 | 1 | 2:
                board.admit(name, create_slice(name, chance.sample(NODES, chance.randint(1, 3))))
                board.program(name)
            case 3 | 4 | 5:
                peerings.ensure(peering, create_peering(name, other))
                if chance.random() < 0.7:
                    peerings.accept(peering, project_of(other))
            case 6:
                peerings.accept(peering, chance.choice(["red", "blue"]))
            case 7:
                board.withdraw(name) if chance.random() < 0.3 else peerings.delete(peering)
            case 8:
                agent = self.agents[chance.choice(NODES)]
                agent.ports = chance.choice(LOST)
                self.machine.settle([agent], 1)
            case 9:
                self.machine.settle(self.agents.values(), 1)
            case 10:
                self.rewire_or_drain()

    def rewire_or_drain(self) -> None:
        if self.chance.random() < 0.5:
            self.machine.drains.ensure("d", DrainRequest(elements=[self.chance.choice(ELEMENTS)]))
            return
        absent = [] if self.chance.random() < 0.3 else [Deviation("NodeAbsent", self.chance.choice(NODES)[4:])]
        topology = compile_with_deviations(self.machine.fabric.spec, frozenset(absent))
        self.machine.promises.apply_topology(Supernode("sn0", topology=topology))
        self.machine.watch()


def expected(machine: LinkMachine) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By slice and member what is to be held of peerings, read off the rows and worked out without any memory."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with machine.store.reading() as session:
        slices = {row.name: row for row in machine.store.slices(session)}
        rows = [row for row in machine.store.peerings(session) if row.state in (PROGRAMMING_PEERS, PEERED)]
    for row in slices.values():
        found[row.name] = {node: [] for node in row.members}
        for each in [each for each in rows if row.name in each.slices]:
            partner = slices.get(next(name for name in each.slices if name != row.name))
            if partner is None or partner.state == "Withdrawing":
                continue
            routes = choose_routes(machine.fabric, Plane(row.plane), [*row.members, *partner.members])
            ends = [*machine.fabric.ports.npus, *machine.fabric.ports.dies]
            towards = {*ends, *partner.members, *(f"{member}-{end}" for member in partner.members for end in ends)}
            for node in row.members:
                body = routes_body(routes.nodes[node])
                body["detours"] = {key: way for key, way in body["detours"].items() if key in towards}
                body |= {"name": each.name, "slice": partner.name, "isolation_key": each.isolation_key}
                body |= {"peers": [peer for peer in partner.members if peer != node], "security_rules": []}
                found[row.name][node].append(body)
    return found


def extended(machine: LinkMachine) -> dict[str, dict[str, list[dict[str, Any]]]]:
    found = {}
    with machine.store.reading() as session:
        for row in machine.store.slices(session):
            bodies: dict[str, dict[str, Any]] = {node: {} for node in row.members}
            machine.peerings.extend(row, bodies)
            found[row.name] = {node: body.get("peerings", []) for node, body in bodies.items()}
    return found


@pytest.mark.parametrize("plane", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_cached_routes_equal_computed_ones(machine, plane, seed):
    life, most = RandomHistory(machine, plane, seed), 0
    for _ in range(80):
        try:
            life.step()
        except MatrixError:
            continue
        assert extended(machine) == expected(machine)
        remembered = {key: machine.memory()[key] for key in ("peered", "peering keys")}
        with machine.store.reading() as session:
            machine.peerings.refresh(session)
        assert {key: machine.memory()[key] for key in ("peered", "peering keys")} == remembered
        most = max(most, len(machine.promises.peered_members))
    assert most >= 2, "some were peered"


def test_a_changed_slice_recomputes_only_its_own_peerings(machine, monkeypatch):
    """Four slices that all reach one another: of the six pairs the three of the slice that changed are worked out."""
    worked_out = []
    real = peer_routes_module.peer_routes

    def counted(*about: Any) -> Any:
        worked_out.append(about)
        return real(*about)

    monkeypatch.setattr(peer_routes_module, "peer_routes", counted)
    names = [f"{letter}-ub" for letter in "abcd"]
    for at, name in enumerate(names):
        machine.board.admit(name, create_slice(name, NODES[2 * at : 2 * at + 2]))
        machine.board.program(name)
    for at, one in enumerate(names):
        for other in names[:at]:
            machine.peerings.ensure(f"{one}{other}", create_peering(one, other))
    agents = [ObedientAgent(node) for node in NODES]
    machine.settle(agents)
    worked_out.clear()
    machine.board.admit("a-ub", create_slice("a-ub", [NODES[0]]))
    machine.board.program("a-ub")
    machine.settle(agents)
    assert len(worked_out) == 6, "three pairs, from either side"
    assert all(NODES[0] in [*members, *peers] for _, _, members, peers in worked_out)


def test_a_key_awaiting_consent_is_not_reused(machine):
    machine.board.admit("red/a-ub", create_slice("red/a-ub", NODES[:2]))
    machine.board.admit("blue/c-ub", create_slice("blue/c-ub", NODES[2:4]))
    keys = [
        machine.peerings.ensure(name, create_peering("red/a-ub", "blue/c-ub")).isolation_key for name in ("p1", "p2")
    ]
    keys.append(machine.board.admit("red/b-ub", create_slice("red/b-ub", NODES[4:6])).isolation_key)
    keys += [machine.shown(name).isolation_key for name in ("red/a-ub", "blue/c-ub")]
    assert len({*keys}) == 5
    machine.peerings.delete("p1")
    assert machine.board.admit("red/d-ub", create_slice("red/d-ub", NODES[6:8])).isolation_key == keys[0]
