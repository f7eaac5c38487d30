"""CloudMatrix-Infer as whoever scales asks it: what is served where, what it does, and that nodes be drained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from matrixcommon.api.client import Collection, at, call
from matrixcommon.model.resource_key import key_of, resolve


@dataclass(frozen=True)
class OwnedDrain:
    """A drain of a deployment on `instance` that somebody has asked for: `by`."""

    by: str
    nodes: frozenset[str]
    instance: str


class Inference(Collection):
    """Its deployments, over REST, as any client has them."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        super().__init__(http, "deployments")

    async def served_on(self, instance: str) -> list[str]:
        """The keys of the deployments on that instance."""
        found = [each for each in await self.all() if resolve(each["instance"], each["project"]) == instance]
        return sorted(key_of(each["project"], each["name"]) for each in found)

    async def statistics(self, name: str, window_s: float | None = None, tpot_s: float | None = None) -> dict[str, Any]:
        """`tpot_s`: the objective for a token that its `work` is for."""
        asked = {"windowS": window_s, "tpotS": tpot_s}
        params = {field: value for field, value in asked.items() if value is not None} or None
        return await call(self._http, "GET", at("deployments", name, "/statistics"), params=params)

    async def deployments_on(self, instance: str) -> dict[str, dict[str, Any]]:
        """The deployments on that instance, each as it is now, by key."""
        found = {key: await self.find(key) for key in await self.served_on(instance)}
        return {key: view for key, view in found.items() if view is not None}

    async def drains(self) -> dict[str, OwnedDrain]:
        """The deployments that drain for somebody."""
        found = {}
        for each in await self.all():
            drain = each.get("drain") or {}
            if by := drain.get("by"):
                instance = resolve(each["instance"], each["project"])
                found[key_of(each["project"], each["name"])] = OwnedDrain(by, frozenset(drain["nodes"]), instance)
        return found

    async def drain(self, name: str, nodes: list[str], **more: Any) -> dict[str, Any]:
        """`more`: other fields of the `DrainRequest`, as they are on the wire."""
        return await self.ensure(name, {"nodes": nodes, **more}, "/drain")

    async def undrain(self, name: str) -> None:
        await call(self._http, "DELETE", at("deployments", name, "/drain"))

    async def scales(self) -> dict[str, str]:
        """The deployments whose pools somebody sizes, and who."""
        scales = {key_of(each["project"], each["name"]): each.get("scale") or {} for each in await self.all()}
        return {key: scale["by"] for key, scale in scales.items() if scale.get("by")}

    async def rescale(self, name: str, prefill: int, decode: int, caching: int | None, by: str) -> dict[str, Any]:
        """Have pools of so many nodes; both zero: nothing is served. Raises Conflict where that has requests."""
        sizes = {"prefillNodes": prefill, "decodeNodes": decode, "by": by}
        return await self.ensure(name, sizes if caching is None else sizes | {"cachingNodes": caching}, "/scale")

    async def unscale(self, name: str) -> None:
        """Have pools of the sizes of the deployment's spec again."""
        await call(self._http, "DELETE", at("deployments", name, "/scale"))
