"""MatrixCompute's client with the verbs that only tests ask for."""

from __future__ import annotations

from matrixcompute.client import ComputeClient
from matrixcompute.contract import InstanceView


class WholeComputeClient(ComputeClient):
    async def instances(self) -> list[InstanceView]:
        return await self._all(InstanceView, "instances")
