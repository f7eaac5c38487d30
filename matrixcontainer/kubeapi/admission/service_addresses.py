"""Addresses and node ports of services: each is given once, and what somebody asks for and another has is refused.

Where to look first follows from the name, so that the same service made again gets the same address on every run.
Replicas on one database know of each other's services as soon as they are written; two written at one moment by two
replicas may still get one address.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from matrixcontainer.kubeapi.builtin.services import INSIDE, NODE_PORTS
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.store import Store

WRITTEN_WITHIN_S = 30.0
"""What was given out longer ago and is not written was refused later on, or is gone again."""


class ServiceAddresses:
    """An admission step that comes last among those that change what is written."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self._given: dict[str | int, tuple[tuple[str, str], float]] = {}

    async def __call__(
        self, resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
    ) -> None:
        if resource.storage != "services" or new is None or new["spec"].get("type") not in (*INSIDE, None):
            return
        spec, owner = new["spec"], (new["metadata"]["namespace"], new["metadata"]["name"])
        taken = self._taken(owner)
        rng = random.Random("/".join(owner))
        address = spec.get("clusterIP") or next(each for each in _addresses(rng) if each not in taken)
        if address in taken:
            why = f"failed to allocate IP {address}: provided IP is already allocated"
            raise _refusal(new, errors.invalid("spec.clusterIPs", [address], why))
        spec["clusterIP"] = address
        spec["clusterIPs"] = spec.get("clusterIPs") or [address]
        given: list[str | int] = [] if address == "None" else [address]
        if spec["type"] == "NodePort" or (
            spec["type"] == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
        ):
            for at, port in enumerate(spec.get("ports") or []):
                asked = port.get("nodePort")
                if asked and asked in taken:
                    why = "provided port is already allocated"
                    raise _refusal(new, errors.invalid(f"spec.ports[{at}].nodePort", asked, why))
                port["nodePort"] = asked or next(each for each in _ports(rng) if each not in taken)
                taken.add(port["nodePort"])
                given.append(port["nodePort"])
        if not options.dry_run:
            self._given.update(dict.fromkeys(given, (owner, self._now())))

    def _taken(self, owner: tuple[str, str]) -> set[str | int]:
        """Addresses and node ports of all other services."""
        oldest = self._now() - WRITTEN_WITHIN_S
        self._given = {each: (holder, at) for each, (holder, at) in self._given.items() if at > oldest}
        found = {each for each, (holder, _) in self._given.items() if holder != owner}
        for record in self._store.objects_of("services"):
            if record.key[1:] != owner:
                spec = record.obj.get("spec") or {}
                found.update(spec.get("clusterIPs") or ())
                found.update(port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort"))
        return found - {"None", ""}


def _addresses(rng: random.Random) -> Iterator[str]:
    """Every address of the range once, from a place on that chance names."""
    first = rng.randrange(254 * 254)
    for at in range(254 * 254):
        high, low = divmod((first + at) % (254 * 254), 254)
        yield f"10.96.{high + 1}.{low + 1}"


def _ports(rng: random.Random) -> Iterator[int]:
    low, high = NODE_PORTS
    first = rng.randint(low, high)
    yield from (*range(first, high + 1), *range(low, first))


def _refusal(service: dict[str, Any], cause: errors.Cause) -> errors.ApiError:
    return errors.unprocessable("Service", "", service["metadata"]["name"], [cause])
