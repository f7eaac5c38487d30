"""Strategy and validation of Services. They get an address, as clients expect one, but nothing listens on it.

admission/service_addresses.py, which knows the other services, allocates addresses and node ports.
"""

from collections.abc import Iterator
from typing import Any

from matrixcontainer.kubeapi.builtin.checks import Obj, enum, port, port_or_name, rules
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.builtin.validate_pods import PROTOCOLS
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import label_1035_error, label_error, subdomain_error
from matrixcontainer.kubeapi.registry.strategy import ResourceInfo

NODE_PORT_TYPES = (30000, 32767)
ADDRESS_PARTS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
INSIDE, OUTSIDE = ("ClusterIP", "NodePort", "LoadBalancer"), ("NodePort", "LoadBalancer")
FIELDS_BY_TYPE = {  # fields that only some types of service have
    **dict.fromkeys(ADDRESS_PARTS, INSIDE),
    "internalTrafficPolicy": INSIDE,
    "externalTrafficPolicy": OUTSIDE,
    "allocateLoadBalancerNodePorts": ("LoadBalancer",),
    "loadBalancerClass": ("LoadBalancer",),
    "healthCheckNodePort": ("LoadBalancer",),
}


class ServiceStrategy(BuiltinStrategy):
    check_name = staticmethod(label_1035_error)
    has_generation = False
    validates_metadata_twice = True
    returns_deleted = True

    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        super().prepare_create(obj, resource)
        _set_families(obj)

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: ResourceInfo) -> None:
        super().prepare_update(new, old, resource)
        before, after = old["spec"], new.get("spec") or {}
        for key, kinds in FIELDS_BY_TYPE.items():  # drop fields of the old type that the new one does not have
            if before.get("type") in kinds and after.get("type") not in kinds and after.get(key) == before.get(key):
                after.pop(key, None)
        if after.get("type") == "ExternalName":
            return
        if before.get("type") != "ExternalName":
            for key in ADDRESS_PARTS:
                if not after.get(key) and before.get(key):
                    after[key] = before[key]
        _keep_node_ports(after, before)
        _set_families(new)

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        causes = super().validate(obj, old)
        spec = obj["spec"]
        before = (old or {}).get("spec", {}).get("clusterIP")
        if before and spec.get("clusterIP") != before and spec["type"] != "ExternalName":
            shown = spec.get("clusterIPs") or []
            causes.append(errors.invalid("spec.clusterIPs[0]", shown, "may not change once set"))
        return causes


def _set_families(obj: dict[str, Any]) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("type") == "ExternalName":
        return
    free = spec.get("clusterIP") == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if free else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if free else "SingleStack")


def _keep_node_ports(after: dict[str, Any], before: dict[str, Any]) -> None:
    current = {(one.get("protocol"), one.get("port")): one.get("nodePort") for one in before.get("ports") or []}
    for one in (after.get("ports") or []) if after.get("type") in ("NodePort", "LoadBalancer") else []:
        if not one.get("nodePort") and (kept := current.get((one.get("protocol"), one.get("port")))):
            one["nodePort"] = kept


# ---- rules

SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def validate_ports(spec: Obj, path: str) -> Iterator[Cause]:
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield errors.required(f"{path}.ports")
    names: set[str] = set()
    seen: set[tuple[object, ...]] = set()
    for index, one in enumerate(ports):
        where, name = f"{path}.ports[{index}]", one.get("name", "")
        if len(ports) > 1 and not name:
            yield errors.required(f"{where}.name")
        elif name:
            if message := label_error(name):
                yield errors.invalid(f"{where}.name", name, message)
            if name in names:
                yield errors.duplicate(f"{where}.name", name)
            names.add(name)
        identity = (one.get("protocol"), one.get("port"))
        if identity in seen:
            yield errors.duplicate(where, {"protocol": identity[0], "port": identity[1]})
        seen.add(identity)


def validate_type(spec: Obj, path: str) -> Iterator[Cause]:
    if spec.get("type") == "ExternalName":
        name = spec.get("externalName", "").removesuffix(".")
        if not name:
            yield errors.required(f"{path}.externalName")
        elif message := subdomain_error(name):
            yield errors.invalid(f"{path}.externalName", spec["externalName"], message)
    elif spec.get("type") == "LoadBalancer" and spec.get("clusterIP") == "None":
        message = "may not be set to 'None' for LoadBalancer services"
        yield errors.invalid(f"{path}.clusterIPs[0]", "None", message)


rules(
    "core.v1.ServiceSpec",
    validate_ports,
    validate_type,
    enum("type", *SERVICE_TYPES, required=True),
    enum("sessionAffinity", "ClientIP", "None", required=True),
    enum("internalTrafficPolicy", "Cluster", "Local"),
    enum("externalTrafficPolicy", "Cluster", "Local"),
)
rules(
    "core.v1.ServicePort",
    port("port"),
    port_or_name("targetPort"),
    enum("protocol", *PROTOCOLS, required=True),
)
