"""Allocation of cluster IPs and node ports to services: each is assigned once, and a requested one in use is refused.

The search starts at a position derived from the service's name, so that a service gets the same address in every run.
Replicas on one database see each other's services once written; two services written at the same moment by two
replicas may still get the same address.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from matrixcontainer.kubeapi.builtin.services import INSIDE, NODE_PORT_TYPES
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.store import Store

WRITTEN_WITHIN_S = 30.0
"""How long an assigned address stays reserved until its service is written; after that the write has failed, or the
service was deleted again."""


class ServiceAddresses:
    """Admission plugin; must be the last of the mutating ones."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self._allocated: dict[str | int, tuple[tuple[str, str], float]] = {}

    async def __call__(
        self, resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
    ) -> None:
        if resource.storage != "services" or new is None or new["spec"].get("type") not in (*INSIDE, None):
            return
        spec, owner = new["spec"], (new["metadata"]["namespace"], new["metadata"]["name"])
        taken = self._allocated_addresses(owner)
        rng = random.Random("/".join(owner))
        address = spec.get("clusterIP") or next(each for each in _addresses(rng) if each not in taken)
        if address in taken:
            error = f"failed to allocate IP {address}: provided IP is already allocated"
            raise _invalid_service(new, errors.invalid("spec.clusterIPs", [address], error))
        spec["clusterIP"] = address
        spec["clusterIPs"] = spec.get("clusterIPs") or [address]
        allocated: list[str | int] = [] if address == "None" else [address]
        if spec["type"] == "NodePort" or (
            spec["type"] == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
        ):
            for at, port in enumerate(spec.get("ports") or []):
                asked = port.get("nodePort")
                if asked and asked in taken:
                    error = "provided port is already allocated"
                    raise _invalid_service(new, errors.invalid(f"spec.ports[{at}].nodePort", asked, error))
                port["nodePort"] = asked or next(each for each in _ports(rng) if each not in taken)
                taken.add(port["nodePort"])
                allocated.append(port["nodePort"])
        if not options.dry_run:
            self._allocated.update(dict.fromkeys(allocated, (owner, self._now())))

    def _allocated_addresses(self, owner: tuple[str, str]) -> set[str | int]:
        """Addresses and node ports of all other services."""
        oldest = self._now() - WRITTEN_WITHIN_S
        self._allocated = {each: (holder, at) for each, (holder, at) in self._allocated.items() if at > oldest}
        found = {each for each, (holder, _) in self._allocated.items() if holder != owner}
        for record in self._store.objects_of("services"):
            if record.key[1:] != owner:
                spec = record.obj.get("spec") or {}
                found.update(spec.get("clusterIPs") or ())
                found.update(port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort"))
        return found - {"None", ""}


def _addresses(rng: random.Random) -> Iterator[str]:
    """All addresses of the range, starting at a random one."""
    first = rng.randrange(254 * 254)
    for at in range(254 * 254):
        high, low = divmod((first + at) % (254 * 254), 254)
        yield f"10.96.{high + 1}.{low + 1}"


def _ports(rng: random.Random) -> Iterator[int]:
    low, high = NODE_PORT_TYPES
    first = rng.randint(low, high)
    yield from (*range(first, high + 1), *range(low, first))


def _invalid_service(service: dict[str, Any], cause: errors.Cause) -> errors.ApiError:
    return errors.unprocessable("Service", "", service["metadata"]["name"], [cause])
