"""What is shown of the emulated hardware."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from matrixcommon.model.hardware_names import CabinetName, NodeName, SwitchName
from matrixcommon.model.resource_model import ResourceView
from matrixresource.agent.fault_catalogue import FaultKind


class InstalledSupernode(ResourceView):
    """A supernode whose cabinets stand."""

    state: str = "Installed"
    nodes: int
    powered_nodes: int


class InjectedFaultView(ResourceView):
    """A fault as it is on the hardware: Injected, or Ended by a repair in place."""

    state: str = "Injected"
    kind: FaultKind
    target: NodeName | SwitchName | CabinetName
    parameters: dict[str, Any] = Field(default_factory=dict)
