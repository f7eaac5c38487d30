"""Two faults on one piece of hardware, over the whole catalogue: each holds until it is cleared, also through a restart of
the process that plays the nodes, and after both are cleared the hardware is whole."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixresource.agent.fault_catalogue import FAULT_KINDS, TABLE_KINDS
from matrixresource.agent.hardware import InjectedFault
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.fleet.store import FleetStore
from tests.clocks import FixedClock

NODE, PORT = "sn0-c03-n2", "ub-p3-k11"
EACH: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "cabinet-power": (("sn0-c03", {}),),
    "npu-fault": ((NODE, {"npu": 2, "severity": "critical"}), (NODE, {"npu": 2, "severity": "hint"})),
    "component-fault": (
        (NODE, {"component": "npu2", "code": "220001001"}),
        (NODE, {"component": "npu2", "code": "220001001", "severity": "minor"}),
    ),
    "missing-part": ((NODE, {"part": "npu5"}), (NODE, {"part": "npu5-die1"})),
    "stage-failure": ((NODE, {"stage": "npu-self-test"}), (NODE, {"stage": "npu-self-test", "why": "too hot"})),
    "slow-node": ((NODE, {"factor": 3}), (NODE, {"severity": "minor"})),
    "link-down": ((NODE, {"port": PORT}), (NODE, {"port": "ub-p3-*"})),
    "link-degraded": ((NODE, {"port": PORT, "share": 0.5}), (NODE, {"port": PORT, "share": 0.2})),
    "link-flapping": ((NODE, {"port": PORT}),),
    "cable-moved": ((NODE, {"port": PORT, "peer": "sn0-l2p3-k12"}), (NODE, {"port": PORT, "peer": "sn0-l2p3-k13"})),
    "link-silent": ((NODE, {"port": PORT}),),
    "link-slow": ((NODE, {"port": PORT, "share": 0.5}), (NODE, {"port": PORT, "share": 0.2})),
    "switch-down": (("sn0-l2p3-k11", {}), ("sn0-l2p3-k12", {})),
    "switch-silent": (("sn0-l2p3-k11", {}), ("sn0-l2p3-k12", {})),
    "messages-lost": ((NODE, {"share": 0.5}), (NODE, {"share": 0.1})),
    "messages-delayed": ((NODE, {"delayS": 3}), (NODE, {})),
}
"""What each kind is given here; where it says nothing, the node alone."""
LASTING = [(kind, *each) for kind in FAULT_KINDS if kind not in TABLE_KINDS for each in EACH.get(kind, ((NODE, {}),))]
"""A table of a switch is struck once, and is the agent's to write again."""


def fault(name: str, of: tuple[str, str, dict[str, Any]]) -> InjectedFault:
    kind, target, parameters = of
    return InjectedFault.model_validate({"name": name, "kind": kind, "target": target, "parameters": parameters})


def fleet(memory: FleetStore) -> Fleet:
    return Fleet([NodeName(NODE)], memory, FixedClock(), seed=1)


def state(fleet: Fleet) -> dict[str, Any]:
    """All that faults change of the node."""
    node = fleet.nodes[NodeName(NODE)]
    return {
        "powered": node.powered,
        "agents": node.agents_run,
        "codes": sorted(node.codes),
        "severities": node.severities,
        "ports": node.ports,
        "silent": node.unreported_losses,
        "moved": node.moved,
        "missing": node.missing,
        "inventory": node.inventory,
        "messages": node.messages and asdict(node.messages),
        "slowdown": node.slowdown,
        "failing": node.failing,
    }


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """What each fault does by itself."""
    found = {}
    for each in LASTING:
        struck = fleet(FleetStore(None))
        struck.inject(fault("only", each))
        found[repr(each)] = state(struck)
    return found


def test_every_kind_does_something_by_itself(alone: dict[str, dict[str, Any]]) -> None:
    whole = state(fleet(FleetStore(None)))
    assert {each[0] for each in LASTING} | set(TABLE_KINDS) == set(FAULT_KINDS)
    assert [each for each, shown in alone.items() if shown == whole] == []


@pytest.mark.parametrize("kind", sorted({each[0] for each in LASTING}))
def test_a_fault_holds_until_it_is_cleared_itself(kind: str, alone: dict[str, dict[str, Any]]) -> None:
    struck = fleet(FleetStore(None))
    whole = state(struck)
    for first, second in itertools.product([each for each in LASTING if each[0] == kind], LASTING):
        for order in ((first, second), (second, first)):
            struck.inject(fault("a", order[0]))
            struck.inject(fault("b", order[1]))
            struck.clear("a")
            assert state(struck) == alone[repr(order[1])], f"{order[1]} without {order[0]}"
            struck.clear("b")
            assert state(struck) == whole, order


@pytest.mark.parametrize("kind", sorted({each[0] for each in LASTING}))
def test_faults_are_there_again_in_the_next_life_of_the_process(kind: str, tmp_path: Path) -> None:
    for at, each in enumerate(each for each in LASTING if each[0] == kind):
        file = tmp_path / f"{at}.db"
        before = fleet(FleetStore(file))
        whole = state(before)
        before.inject(fault("a", each))
        after = fleet(FleetStore(file))
        assert state(after) == state(before) != whole
        after.clear("a")
        assert state(after) == state(fleet(FleetStore(file))) == whole


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (("hint", "critical"), "critical"),
        (("critical", "hint"), "critical"),
        (("minor", None), None),
        ((None, "major"), "major"),
        (("minor", "hint"), "minor"),
    ],
)
def test_of_one_code_that_is_raised_twice_the_worse_severity_counts(
    given: tuple[str | None, str | None], reported: str | None
) -> None:
    """A fault that does not say is judged as a major one is."""
    struck = fleet(FleetStore(None))
    for name, severity in zip("ab", given, strict=True):
        struck.inject(fault(name, ("npu-fault", NODE, {} if severity is None else {"severity": severity})))
    assert struck.nodes[NodeName(NODE)].severities.get(("220001001", "npu0")) == reported
