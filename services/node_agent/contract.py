"""Requests and views of the emulated hardware's API."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.hardware_names import CabinetName, NodeName, SwitchName
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.agent.fault_catalogue import FaultKind


class InstalledSupernode(ResourceView):
    """An installed supernode."""

    state: str = Field("Installed", description="always Installed: what is removed is not listed")
    nodes: int = Field(description="number of its nodes")
    powered_nodes: int = Field(description="number of its nodes that have power")


class FaultRequest(ApiModel):
    """A fault to inject: a kind from `/v1/fault-kinds`, the node, cabinet or switch, and the parameters of the kind."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "node-down", "target": "sn0-c09-n0"},)

    kind: FaultKind = Field(description="kind of fault, one of those that `/v1/fault-kinds` lists")
    target: NodeName | SwitchName | CabinetName = Field(
        description="node, cabinet or switch to put it on, as the kind requires"
    )
    parameters: dict[str, Any] = Field(
        default_factory=empty_dict,
        description="parameters of the kind, such as `port`, `npu`, `share` or `periodS`; empty for its defaults",
    )


class InjectedFaultView(ResourceView):
    """A fault on the hardware: Injected, or Ended by a repair in place."""

    state: str = Field("Injected", description="Injected, or Ended once a repair in place has removed its effect")
    kind: FaultKind = Field(description="kind of fault, one of those that `/v1/fault-kinds` lists")
    target: NodeName | SwitchName | CabinetName = Field(description="node, cabinet or switch that it is on")
    parameters: dict[str, Any] = Field(
        default_factory=empty_dict, description="parameters of the kind, as they were given"
    )


ProcessFaultKind = Literal["service-killed", "service-paused", "database-readonly", "database-stalled"]


class ProcessView(ResourceView):
    """A process of the control plane and its real state."""

    state: str = Field("", description="Running, or Stopped if it has ended or is stopped by a signal")
    running: bool = Field(description="whether it is running, and not stopped by a signal")
    restarted: bool = Field(description="whether it was restarted since its last fault")
    writable: bool = Field(description="whether its database accepts writes")
    stalled: bool = Field(description="whether a fault has stalled its database")


class ProcessFaultRequest(ApiModel):
    """A fault on a process of the control plane, or on its database."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "service-paused", "target": "resource"},)

    kind: ProcessFaultKind = Field(
        description="what to do: kill or pause the service, or make its database read-only or stalled"
    )
    target: str = Field(max_length=40, description="name of the service in `/v1/processes`")
    parameters: dict[str, str] = Field(default_factory=empty_dict, max_length=16, description="parameters of the kind")


class ProcessFaultView(ResourceView, ProcessFaultRequest):
    """A fault on a process, until it is undone."""

    state: str = Field("Injected", description="always Injected: a fault that is undone is not listed")


class ProcessFaultInjector(Protocol):
    """Who carries out faults on processes."""

    async def processes(self) -> list[ProcessView]: ...
    async def process(self, name: str) -> ProcessView: ...
    async def faults(self) -> list[ProcessFaultView]: ...
    async def fault(self, name: str) -> ProcessFaultView: ...
    async def inject(self, name: str, body: ProcessFaultRequest, validate_only: bool = False) -> ProcessFaultView: ...
    async def clear(self, name: str) -> None: ...
