"""Services as the API keeps them: an address of their own, so that clients find one; nothing listens there."""

import random
from typing import Any

from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import is_label_1035
from matrixcontainer.kubeapi.registry.strategy import ResourceInfo

NODE_PORTS = (30000, 32767)
ADDRESS_PARTS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
INSIDE, OUTSIDE = ("ClusterIP", "NodePort", "LoadBalancer"), ("NodePort", "LoadBalancer")
OF_KINDS = {  # parts that only some kinds of service have
    **dict.fromkeys(ADDRESS_PARTS, INSIDE),
    "internalTrafficPolicy": INSIDE,
    "externalTrafficPolicy": OUTSIDE,
    "allocateLoadBalancerNodePorts": ("LoadBalancer",),
    "loadBalancerClass": ("LoadBalancer",),
    "healthCheckNodePort": ("LoadBalancer",),
}


class ServiceStrategy(BuiltinStrategy):
    check_name = staticmethod(is_label_1035)
    has_generation = False
    rechecks_metadata = True
    returns_deleted = True

    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        super().prepare_create(obj, resource)
        _give_addresses(obj)

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: ResourceInfo) -> None:
        super().prepare_update(new, old, resource)
        before, after = old["spec"], new.get("spec") or {}
        for key, kinds in OF_KINDS.items():  # what came with the former kind goes with it
            if before.get("type") in kinds and after.get("type") not in kinds and after.get(key) == before.get(key):
                after.pop(key, None)
        if after.get("type") == "ExternalName":
            return
        if before.get("type") != "ExternalName":
            for key in ADDRESS_PARTS:
                if not after.get(key) and before.get(key):
                    after[key] = before[key]
        _keep_node_ports(after, before)
        _give_addresses(new)

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        found = super().validate(obj, old)
        spec = obj["spec"]
        before = (old or {}).get("spec", {}).get("clusterIP")
        if before and spec.get("clusterIP") != before and spec["type"] != "ExternalName":
            shown = errors.go_list(spec.get("clusterIPs") or [])
            found.append(errors.invalid("spec.clusterIPs[0]", shown, "may not change once set"))
        return found


def _give_addresses(obj: dict[str, Any]) -> None:
    spec, kind = obj.setdefault("spec", {}), obj.get("spec", {}).get("type")
    if kind == "ExternalName":
        return
    name = f"{obj['metadata'].get('namespace')}/{obj['metadata'].get('name')}"
    rng = random.Random(name)  # the same service gets the same address
    if not spec.get("clusterIP"):
        spec["clusterIP"] = f"10.96.{rng.randrange(1, 255)}.{rng.randrange(1, 255)}"
    if not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    free = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if free else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if free else "SingleStack")
    if kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)):
        for port in spec.get("ports") or []:
            if not port.get("nodePort"):
                port["nodePort"] = rng.randint(*NODE_PORTS)


def _keep_node_ports(after: dict[str, Any], before: dict[str, Any]) -> None:
    current = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in before.get("ports") or []}
    for port in (after.get("ports") or []) if after.get("type") in ("NodePort", "LoadBalancer") else []:
        if not port.get("nodePort") and (kept := current.get((port.get("protocol"), port.get("port")))):
            port["nodePort"] = kept
