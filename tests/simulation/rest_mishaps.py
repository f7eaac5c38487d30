"""What happens to the stack: hardware fails and is repaired, processes end at any moment, time passes."""

from __future__ import annotations

from typing import Any

from tests.matrixresource.topology.three_cabinets import NODES
from tests.simulation.drawing import integers, just, one_of, sampled_from
from tests.simulation.rest_actions import action
from tests.simulation.rest_life import SERVICES, Life
from tests.small_stack import REPLICATED, replica_of

FAULTS: list[dict[str, Any]] = [
    {"kind": "node-down"},
    {"kind": "node-down"},
    {"kind": "agent-hang"},
    {"kind": "npu-fault", "parameters": {"npu": 1, "code": "80C98000"}},
    {"kind": "npu-fault", "parameters": {"npu": 5, "die": 1}},
    {"kind": "component-fault", "parameters": {"component": "node", "code": "x", "severity": "critical"}},
    {"kind": "missing-part", "parameters": {"part": "npu3"}},
    {"kind": "link-down", "parameters": {"port": "ub-p3-k11"}},
    {"kind": "link-down", "parameters": {"port": "ub-p*-k0?"}},
    {"kind": "link-down", "parameters": {"port": "rdma-npu5-die0"}},
    {"kind": "link-down", "parameters": {"port": "vpc"}},
    {"kind": "link-degraded", "parameters": {"port": "ub-p1-k*", "share": 0.25}},
    {"kind": "link-silent", "parameters": {"port": "ub-p2-k05"}},
    {"kind": "cable-moved", "parameters": {"port": "ub-p3-k11", "peer": "sn0-l2p3-k12"}},
    {"kind": "tables-lost"},
    {"kind": "tables-corrupted"},
    {"kind": "switch-down", "target": "sn0-l2p3-k11"},
]


@action(name=sampled_from(["f0", "f1", "f2"]), node=sampled_from(NODES), fault=sampled_from(FAULTS))
async def inject_fault(life: Life, name: str, node: str, fault: dict[str, Any]) -> None:
    await life.ask("agents", "PUT", f"/v1/faults/{name}", {"target": node, **fault})


@action(name=sampled_from(["f0", "f1", "f2"]))
async def clear_fault(life: Life, name: str) -> None:
    await life.ask("agents", "DELETE", f"/v1/faults/{name}")


SERVICE = sampled_from([*SERVICES, *map(replica_of, REPLICATED)])
"""Whose process ends; where there are no replicas, the only one."""


@action(service=one_of(SERVICE, just("agents")), steps=integers(0, 2))
async def kill(life: Life, service: str, steps: int) -> None:
    await life.kill(seat(life, service), steps)


@action(service=SERVICE, commits=integers(1, 8))
async def kill_after_a_commit(life: Life, service: str, commits: int) -> None:
    if seat(life, service) not in life.down:
        life.armed[seat(life, service)] = commits


def seat(life: Life, service: str) -> str:
    return service if service in life.stack.slots else service.removesuffix("-replica")


@action(wait_s=sampled_from([30, 120, 600]))
async def wait(life: Life, wait_s: float) -> None:
    await life.sleep(wait_s)
