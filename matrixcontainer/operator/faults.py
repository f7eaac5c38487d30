"""MatrixFaults: a fault on emulated hardware for as long as its resource exists."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import NotFound
from matrixcompute.scenarios.strikes import number
from matrixcontainer.client.client import FAULT, KubeClient
from matrixcontainer.operator.ports import Faults
from matrixcontainer.operator.reconciler import Reconciler


class FaultReconciler(Reconciler):
    """A resource's fault."""

    kind = FAULT

    def __init__(self, kube: KubeClient, faults: Faults, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self._faults = faults

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        if body["metadata"].get("deletionTimestamp"):
            with contextlib.suppress(NotFound):
                await self._faults.clear(key)
            return None
        spec = body["spec"]
        parameters = {key: number(value) for key, value in (spec.get("parameters") or {}).items()}
        await self._faults.inject(key, {"kind": spec["kind"], "target": spec["target"], "parameters": parameters})
        message = f"{spec['kind']} is on {spec['target']}; the control plane is not informed"
        await self.report_ready(body, "Injected", True, "Injected", message)
        return None
