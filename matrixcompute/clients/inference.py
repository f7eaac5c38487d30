"""The client of CloudMatrix-Infer for scaling: what is deployed where, its statistics, drains and pool sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from matrixcommon.api.client import Collection, call, resource_path
from matrixcommon.model.resource_key import key_of, resolve


@dataclass(frozen=True)
class OwnedDrain:
    """A drain of a deployment on `instance`, requested `by` its owner."""

    by: str
    nodes: frozenset[str]
    instance: str


class Inference(Collection):
    """The deployments of CloudMatrix-Infer, over its public REST API."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        super().__init__(http, "deployments")

    async def deployment_keys(self, instance: str) -> list[str]:
        """The keys of the deployments on that instance."""
        found = [each for each in await self.all() if resolve(each["instance"], each["project"]) == instance]
        return sorted(key_of(each["project"], each["name"]) for each in found)

    async def statistics(self, name: str, window_s: float | None = None, tpot_s: float | None = None) -> dict[str, Any]:
        """The statistics of a deployment. `tpot_s`: the objective for the time per output token that `work` is computed
        for."""
        query = {"windowS": window_s, "tpotS": tpot_s}
        params = {field: value for field, value in query.items() if value is not None} or None
        return await call(self._http, "GET", resource_path("deployments", name, "/statistics"), params=params)

    async def deployments_on(self, instance: str) -> dict[str, dict[str, Any]]:
        """The current views of the deployments on that instance, by key."""
        found = {key: await self.find(key) for key in await self.deployment_keys(instance)}
        return {key: view for key, view in found.items() if view is not None}

    async def drains(self) -> dict[str, OwnedDrain]:
        """The drains that have an owner, by deployment."""
        found = {}
        for each in await self.all():
            drain = each.get("drain") or {}
            if by := drain.get("by"):
                instance = resolve(each["instance"], each["project"])
                found[key_of(each["project"], each["name"])] = OwnedDrain(by, frozenset(drain["nodes"]), instance)
        return found

    async def drain(self, name: str, nodes: list[str], **fields: Any) -> dict[str, Any]:
        """Drain nodes of a deployment. `fields`: other fields of the `DrainRequest`, in wire form."""
        return await self.ensure(name, {"nodes": nodes, **fields}, "/drain")

    async def undrain(self, name: str) -> None:
        await call(self._http, "DELETE", resource_path("deployments", name, "/drain"))

    async def scales(self) -> dict[str, str]:
        """The owner of the pool sizes of each deployment that has one."""
        scales = {key_of(each["project"], each["name"]): each.get("scale") or {} for each in await self.all()}
        return {key: scale["by"] for key, scale in scales.items() if scale.get("by")}

    async def rescale(self, name: str, prefill: int, decode: int, caching: int | None, by: str) -> dict[str, Any]:
        """Set the nodes of the pools; both zero: nothing is served. Raises Conflict if the deployment then still has
        requests."""
        sizes = {"prefillNodes": prefill, "decodeNodes": decode, "by": by}
        return await self.ensure(name, sizes if caching is None else sizes | {"cachingNodes": caching}, "/scale")

    async def unscale(self, name: str) -> None:
        """Return to the pool sizes of the deployment's spec."""
        await call(self._http, "DELETE", resource_path("deployments", name, "/scale"))
