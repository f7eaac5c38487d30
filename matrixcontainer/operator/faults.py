"""MatrixFaults: a fault in emulated hardware for as long as its resource exists.

The fault has the resource's name. A fault of that name that was injected by other means is left alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import MatrixError, NotFound
from matrixcompute.scenarios.fault_injections import parse_parameter
from matrixcontainer.client.client import FAULT, KubeClient
from matrixcontainer.operator.ports import Faults
from matrixcontainer.operator.reconciler import Reconciler


class FaultReconciler(Reconciler):
    """Reconciles a MatrixFault with the injected fault."""

    kind = FAULT

    def __init__(self, kube: KubeClient, faults: Faults, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self._faults = faults

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        spec = body["spec"]
        parameters = {key: parse_parameter(value) for key, value in (spec.get("parameters") or {}).items()}
        fault = {"kind": spec["kind"], "target": spec["target"], "parameters": parameters}
        if body["metadata"].get("deletionTimestamp"):
            current = await self._faults.find(key)
            if current is not None and {field: current[field] for field in fault} == fault:
                with contextlib.suppress(NotFound):
                    await self._faults.clear(key)
            return None
        await self._faults.inject(key, fault)
        message = f"{spec['kind']} is injected into {spec['target']}; the control plane is not told"
        await self.report_ready(body, "Injected", True, "Injected", message)
        return None

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, temporary: bool) -> None:
        """Also report a name conflict, which resolves itself when the other fault is cleared."""
        await super().report_refusal(key, body, refused, temporary and refused.reason != "Conflict")
