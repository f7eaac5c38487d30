"""What the operator decides before a shrink, over services that are written down."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict, MatrixError
from matrixcompute.contract import InstanceRequest, InstanceView
from matrixcontainer.operator.scale_in import MemberDrain, ScaleIn
from matrixcontainer.operator.workload import metrics_of
from matrixresource.contract.allocations import MemberView

NODES = [f"sn0-c00-n{number}" for number in range(6)]


def a_view(nodes: list[str], **more: Any) -> InstanceView:
    members = [
        MemberView(
            node=node, cabinet="sn0-c00", role="member", rank=rank, state="Active", agent="Connected",
            health="Healthy", ready=True,
        )
        for rank, node in enumerate(nodes)
    ]  # fmt: skip
    request = InstanceRequest(nodes=len(nodes))
    fields = {field: getattr(request, field) for field in InstanceRequest.model_fields}
    whole = {"name": "one", "npus": 8 * len(nodes), "state": "Active", "generation": 1, "observed_generation": 1}
    return InstanceView.model_validate(fields | whole | {"allocation": "one", "members": members} | more)


class World:
    """Kubernetes, MatrixCompute and CloudMatrix-Infer, as far as a shrink asks them."""

    def __init__(
        self,
        *deployments: str,
        drain: dict[str, Any] | None = None,
        desired: int = 4,
        refuses: MatrixError | None = None,
    ) -> None:
        self.refuses = refuses
        self.deployments, self.state, self.desired = deployments, drain or {"state": "Drained"}, desired
        self.drained: list[tuple[str, list[str]]] = []
        self.withdrawn: list[str] = []
        self.events: list[str] = []
        self.scale_in = ScaleIn(self, self, self, lambda: 0.0)  # type: ignore[arg-type]

    async def find(self, kind: Any, name: str, namespace: str) -> dict[str, Any]:
        assert (kind.kind, name, namespace) == ("CloudMatrixInstance", "one", "default")
        return {"metadata": {"name": "one"}, "spec": {"nodes": self.desired}}

    async def list(self, kind: Any) -> tuple[list[dict[str, Any]], str]:
        return [{"metadata": {"name": name}, "spec": {"instance": "one"}} for name in self.deployments], "1"

    async def create(self, kind: Any, body: dict[str, Any], namespace: str) -> None:
        self.events.append(body["reason"])

    async def ensure_instance(self, name: str, request: InstanceRequest, validate_only: bool = False) -> InstanceView:
        assert validate_only, "a drain only plans"
        return a_view(NODES[: request.nodes])

    async def drain(self, name: str, nodes: list[str], *, by: str) -> dict[str, Any]:
        if self.refuses is not None:
            raise self.refuses
        assert by == "cloudmatrixinstances/one"
        self.drained.append((name, nodes))
        return {"drain": self.state}

    async def undrain(self, name: str) -> None:
        self.withdrawn.append(name)

    def drain_leaving_members(self, nodes: int, observed: InstanceView | None, **more: Any) -> MemberDrain:
        metadata = {"name": "one", "namespace": "default", "uid": "u", "generation": 2}
        body = {"apiVersion": "cloudmatrix.io/v1alpha1", "kind": "CloudMatrixInstance", "metadata": metadata}
        return asyncio.run(self.scale_in.drain_leaving_members(body, observed, InstanceRequest(nodes=nodes, **more)))


RUNNING = {"state": "Draining", "requests": 3, "requestsAtStart": 9}


def test_leaving_members_are_drained_first() -> None:
    world = World("one", "two", drain=RUNNING)
    departure = world.drain_leaving_members(4, a_view(NODES))
    assert world.drained == [("one", NODES[4:]), ("two", NODES[4:])]
    assert "one has 3 requests there, two has 3 requests there" in departure.waiting
    assert world.events == ["Draining"]
    shown = departure.with_progress(a_view(NODES)).conditions
    assert [(each.type, each.reason) for each in shown] == [("Progressing", "Draining")]


def test_scale_in_waits_for_a_drain_of_another_owner() -> None:
    world = World("one", refuses=Conflict(f"{NODES[0]} drain for replace-node-one-1"))
    departure = world.drain_leaving_members(4, a_view(NODES))
    assert "cannot drain yet: sn0-c00-n0 drain for replace-node-one-1" in departure.waiting
    assert departure.with_progress(a_view(NODES, readyNodes=5)).ready_nodes == 5
    assert world.events == []


def test_drained_members_are_named_in_the_resize() -> None:
    world = World("one")
    assert world.drain_leaving_members(4, a_view(NODES)) == MemberDrain(NODES[4:])
    assert world.events == ["Drained"]


@pytest.mark.parametrize(
    ("nodes", "observed", "deployments", "more"),
    [
        (8, a_view(NODES), ("one",), {}),  # it grows
        (6, a_view(NODES), ("one",), {"spares": 1}),
        (4, None, ("one",), {}),  # it is not there yet
        (4, a_view(NODES), (), {}),  # nobody serves on it
        (4, a_view(NODES), ("one",), {"placement": {"policy": "spread"}}),  # it moves, which is make before break
    ],
)
def test_nothing_is_drained_where(nodes: int, observed: Any, deployments: tuple[str, ...], more: Any) -> None:
    world = World(*deployments)
    assert world.drain_leaving_members(nodes, observed, **more) == MemberDrain()
    assert world.drained == []


@pytest.mark.parametrize(
    ("desired", "more", "withdrawn"),
    [
        (6, {}, ["one"]),
        (4, {}, []),  # the shrink is still asked for
        (4, {"cancelled": {"operation": "o", "shape": {"nodes": 4}}}, ["one"]),
        (4, {"cancelled": {"operation": "o", "shape": {"nodes": 3}}}, []),  # another one was cancelled
        (6, {"observed_generation": 0}, []),  # a resize is under way
        (6, {"state": "Updating"}, []),
        (4, {"scaling_policy": "follow"}, ["one"]),  # which has nodes drained by itself
    ],
)
def test_unneeded_drain_is_undone(desired: int, more: Any, withdrawn: list[str]) -> None:
    world = World("one", desired=desired)
    infer = {"metadata": {"name": "one"}, "spec": {"instance": "one"}}
    deployment = {"drain": {"nodes": NODES[4:], "by": "cloudmatrixinstances/one"}}
    asyncio.run(world.scale_in.undrain_unneeded(infer, deployment, a_view(NODES, **more)))
    assert world.withdrawn == withdrawn
    asyncio.run(world.scale_in.undrain_unneeded(infer, {}, a_view(NODES)))
    asyncio.run(world.scale_in.undrain_unneeded(infer, deployment, a_view(NODES[:4])))
    assert world.withdrawn == withdrawn, "without a drain, or when its nodes have left, there is nothing to withdraw"


@pytest.mark.parametrize("by", [None, "replace-node-one-1", "scaling-policies/follow", "cloudmatrixinstances/other"])
def test_drain_of_another_owner_is_left_alone(by: str | None) -> None:
    world = World("one", desired=6)
    infer = {"metadata": {"name": "one"}, "spec": {"instance": "one"}}
    deployment = {"drain": {"nodes": NODES[4:], **({"by": by} if by else {})}}
    asyncio.run(world.scale_in.undrain_unneeded(infer, deployment, a_view(NODES)))
    assert world.withdrawn == []


def test_a_workload_has_metrics_once_it_has_served_a_whole_window() -> None:
    statistics = {"windowS": 60.0, "measuredS": 60.0, "queued": 12, "tokensPerSecond": 4321.0}
    metrics = metrics_of(statistics)
    assert metrics is not None
    assert (metrics["num_requests_waiting"], metrics["tokens_per_second"]) == ("12", "4320")
    assert metrics_of(statistics | {"measuredS": 59.0}) is None
