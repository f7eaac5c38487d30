"""What may be wrong with services."""

from collections.abc import Iterator

from matrixcontainer.kubeapi.builtin.checks import Obj, among, port, port_or_name, rules
from matrixcontainer.kubeapi.builtin.validate_pods import PROTOCOLS
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import is_label, is_subdomain

SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def service_ports(spec: Obj, path: str) -> Iterator[Cause]:
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
            if why := is_label(name):
                yield errors.invalid(f"{where}.name", name, why)
            if name in names:
                yield errors.duplicate(f"{where}.name", name)
            names.add(name)
        identity = (one.get("protocol"), one.get("port"))
        if identity in seen:
            yield errors.duplicate(where, {"protocol": identity[0], "port": identity[1]})
        seen.add(identity)


def service_kind(spec: Obj, path: str) -> Iterator[Cause]:
    if spec.get("type") == "ExternalName":
        name = spec.get("externalName", "").removesuffix(".")
        if not name:
            yield errors.required(f"{path}.externalName")
        elif why := is_subdomain(name):
            yield errors.invalid(f"{path}.externalName", spec["externalName"], why)
    elif spec.get("type") == "LoadBalancer" and spec.get("clusterIP") == "None":
        why = "may not be set to 'None' for LoadBalancer services"
        yield errors.invalid(f"{path}.clusterIPs[0]", "None", why)


rules(
    "core.v1.ServiceSpec",
    service_ports,
    service_kind,
    among("type", *SERVICE_TYPES, needed=True),
    among("sessionAffinity", "ClientIP", "None", needed=True),
    among("internalTrafficPolicy", "Cluster", "Local"),
    among("externalTrafficPolicy", "Cluster", "Local"),
)
rules(
    "core.v1.ServicePort",
    port("port"),
    port_or_name("targetPort"),
    among("protocol", *PROTOCOLS, needed=True),
)
