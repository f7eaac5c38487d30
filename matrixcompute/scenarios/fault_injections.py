"""FaultInjection: one action on one resource. The fault is injected, and later cleared, under a name that begins
with the run's prefix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixcompute.scenarios.schema import Scenario
from matrixcompute.scenarios.service_clients import ServiceClients
from matrixresource.agent.fault_catalogue import CATALOGUE

PROCESSES_UNAVAILABLE = (
    "faults cannot be injected into services and databases here: that needs a stack which `matrixctl up` runs locally"
)


@dataclass(frozen=True)
class FaultInjection:
    """`name` is the fault's name without the run's prefix."""

    action: str
    name: str
    kind: str
    target: str
    parameters: Mapping[str, str]

    @property
    def of_processes(self) -> bool:
        return CATALOGUE[self.kind].is_process_fault

    def body(self) -> dict[str, Any]:
        """The request to the emulated hardware."""
        parameters = {key: parse_parameter(text) for key, text in self.parameters.items()}
        return {"kind": self.kind, "target": self.target, "parameters": parameters}

    async def inject(self, clients: ServiceClients, prefix: str, *, validate_only: bool = False) -> None:
        """Inject the fault; `prefix` is the run's prefix. Raises MatrixError. `validate_only` changes nothing."""
        if not self.of_processes:
            await clients.put("agents", "faults", prefix + self.name, self.body(), validate_only=validate_only)
            return
        if clients.processes is None:
            raise InvalidField(PROCESSES_UNAVAILABLE, field="fault")
        if validate_only:
            await clients.processes.check(self.kind, self.target, self.parameters)
        else:
            await clients.processes.inject(prefix + self.name, self.kind, self.target, self.parameters)

    async def clear(self, clients: ServiceClients, prefix: str) -> None:
        if not self.of_processes:
            await clients.delete("agents", "faults", prefix + self.name)
        elif clients.processes is not None:
            await clients.processes.clear(prefix + self.name)


def parse_parameter(text: str) -> Any:
    """A parameter in the type that the hardware expects: a port is a string, a share a number. Fault codes are strings,
    including those that look like a number with an exponent (80E39200) or begin with a zero."""
    if not re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", text):
        return text
    return float(text) if "." in text else int(text)


def plan_injections(
    scenario: Scenario, targets: Mapping[str, Sequence[str]], nodes: Sequence[str]
) -> list[FaultInjection]:
    """All strikes, action by action. `nodes`: all nodes of the machine; a node fault on a cabinet strikes each of its
    nodes."""
    found = []
    for number, action in enumerate(scenario.method):
        resources = list(targets[action.target])
        if scenario.targets[action.target].type == "cabinet" and CATALOGUE[action.fault].scope != "cabinet":
            resources = sorted(each for each in nodes if NodeName(each).cabinet in set(resources))
        found += [
            FaultInjection(action.name, f"{number}-{at}", action.fault, resource, action.parameters)
            for at, resource in enumerate(resources)
        ]
    return found
