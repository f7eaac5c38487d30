"""What may be wrong with services, ingresses, network policies and endpoints."""

import ipaddress
import re
from collections.abc import Iterator

from matrixcontainer.kubeapi.builtin.checks import (
    PORT_MAX,
    RANGE,
    Obj,
    among,
    named,
    needed,
    port,
    port_name_mistakes,
    port_or_name,
    rules,
)
from matrixcontainer.kubeapi.builtin.validate_pods import PROTOCOLS
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause, Spelled
from matrixcontainer.kubeapi.meta.names import is_label, is_label_1035, is_path_segment, is_subdomain

WILDCARD = re.compile(r"^\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
WILDCARD_TEXT = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
    "regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
NO_RULES = Spelled("[]networking.IngressRule(nil)")
BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
BAD_ENDS = ("/..", "/.")
PATH_TYPES = ["Exact", "ImplementationSpecific", "Prefix"]
CIDR_TEXT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"

# ---- services

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
            text = f'core.ServicePort{{Name:"", Protocol:"{identity[0]}", AppProtocol:(*string)(nil), '
            text += f"Port:{identity[1]}, "
            text += 'TargetPort:intstr.IntOrString{Type:0, IntVal:0, StrVal:""}, NodePort:0}'
            yield errors.duplicate(where, Spelled(text))
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

# ---- network policies


def policy_port(value: Obj, path: str) -> Iterator[Cause]:
    current, end = value.get("port"), value.get("endPort")
    if current is None:
        if end is not None:
            yield errors.invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified")
    elif isinstance(current, str):
        if end is not None:
            yield errors.invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
        yield from (errors.invalid(f"{path}.port", current, why) for why in port_name_mistakes(current))
    else:
        if not 1 <= current <= PORT_MAX:
            yield errors.invalid(f"{path}.port", current, RANGE.format(1, PORT_MAX))
        if end is not None and end < current:
            yield errors.invalid(f"{path}.endPort", current, "must be greater than or equal to `port`")
        if end is not None and not 1 <= end <= PORT_MAX:
            yield errors.invalid(f"{path}.endPort", end, RANGE.format(1, PORT_MAX))


def policy_peer(value: Obj, path: str) -> Iterator[Cause]:
    current = [key for key in ("podSelector", "namespaceSelector", "ipBlock") if value.get(key) is not None]
    if not current:
        yield errors.required(path, "must specify a peer")
    elif len(current) > 1 and "ipBlock" in current:
        yield errors.forbidden_field(path, "may not specify both ipBlock and another peer")


def address_block(value: Obj, path: str) -> Iterator[Cause]:
    whole = value.get("cidr", "")
    if not whole:
        yield errors.required(f"{path}.cidr")
        return
    outer = _network(whole)
    if outer is None:
        yield errors.invalid(f"{path}.cidr", whole, CIDR_TEXT)
        return
    for index, text in enumerate(value.get("except") or []):
        inner, where = _network(text), f"{path}.except[{index}]"
        if inner is None:
            yield errors.invalid(where, text, CIDR_TEXT)
        elif inner.version != outer.version or not (
            inner.network_address in outer and inner.prefixlen > outer.prefixlen
        ):
            yield errors.invalid(where, text, "must be a strict subset of `cidr`")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None


def policy_types(value: Obj, path: str) -> Iterator[Cause]:
    current = value.get("policyTypes") or []
    if len(current) > 2:
        yield errors.invalid(
            f"{path}.policyTypes", errors.go_list(current), "may not specify more than two policyTypes"
        )
        return
    for index, word in enumerate(current):
        if word not in ("Ingress", "Egress"):
            yield errors.not_supported(f"{path}.policyTypes[{index}]", word, ["Ingress", "Egress"])


rules("networking.v1.NetworkPolicyPort", among("protocol", "TCP", "UDP", "SCTP"), policy_port)
rules("networking.v1.NetworkPolicyPeer", policy_peer)
rules("networking.v1.IPBlock", address_block)
rules("networking.v1.NetworkPolicySpec", policy_types)

# ---- ingresses


def ingress_spec(spec: Obj, path: str) -> Iterator[Cause]:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield errors.invalid(path, NO_RULES, "either `defaultBackend` or `rules` must be specified")


def ingress_rule(value: Obj, path: str) -> Iterator[Cause]:
    host = value.get("host", "")
    if host:
        if _is_address(host):
            yield errors.invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
        if why := host_mistake(host):
            yield errors.invalid(f"{path}.host", host, why)
    http = value.get("http")
    if http is not None and not http.get("paths"):
        yield errors.required(f"{path}.http.paths")


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def host_mistake(host: str) -> str:
    if "*" not in host:
        return is_subdomain(host)
    return "" if WILDCARD.match(host) else WILDCARD_TEXT


def ingress_path(value: Obj, path: str) -> Iterator[Cause]:
    kind, current = value.get("pathType"), value.get("path", "")
    if kind is None:
        yield errors.required(f"{path}.pathType", "pathType must be specified")
    elif kind in ("Exact", "Prefix"):
        if not current.startswith("/"):
            yield errors.invalid(f"{path}.path", current, "must be an absolute path")
        for bad in BAD_SEQUENCES if current else ():
            if bad in current:
                yield errors.invalid(f"{path}.path", current, f"must not contain '{bad}'")
        for bad in BAD_ENDS if current else ():
            if current.endswith(bad):
                yield errors.invalid(f"{path}.path", current, f"cannot end with '{bad}'")
    elif kind == "ImplementationSpecific":
        if current and not current.startswith("/"):
            yield errors.invalid(f"{path}.path", current, "must be an absolute path")
    else:
        yield errors.not_supported(f"{path}.pathType", kind, PATH_TYPES)


def backend(value: Obj, path: str) -> Iterator[Cause]:
    service, resource = value.get("service"), value.get("resource")
    if service is None and resource is None:
        yield errors.invalid(path, "", "resource or service backend is required")
    elif service is not None and resource is not None:
        yield errors.invalid(path, "", "cannot set both resource and service backends")
    elif service is not None:
        current = service.get("port") or {}
        if current.get("name") and current.get("number"):
            yield errors.invalid(path, "", "cannot set both port name & port number")
        elif not current.get("name") and not current.get("number"):
            yield errors.required(path, "port name or number is required")


def backend_port(value: Obj, path: str) -> Iterator[Cause]:
    if not value.get("name"):
        yield from port("number", zero="none")(value, path)
    elif not value.get("number"):
        yield from port_or_name("name")(value, path)


def secured_hosts(value: Obj, path: str) -> Iterator[Cause]:
    for index, host in enumerate(value.get("hosts") or []):
        if why := host_mistake(host):
            yield errors.invalid(f"{path}.hosts[{index}]", host, why)


REFERENCE = (
    needed("kind", why="kind is required"),
    needed("name", why="name is required"),
    named("apiGroup", is_subdomain),
    named("kind", is_path_segment),
    named("name", is_path_segment),
)


def parameters(value: Obj, path: str) -> Iterator[Cause]:
    """Parameters of an ingress class: the scope says whether a namespace has to be named."""
    scope, namespace = value.get("scope"), value.get("namespace")
    if scope not in ("Cluster", "Namespace"):
        yield errors.not_supported(f"{path}.scope", scope, ["Cluster", "Namespace"])
    elif scope == "Namespace" and namespace is None:
        yield errors.required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
    elif scope == "Cluster" and namespace is not None:
        yield errors.forbidden_field(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")


rules("networking.v1.IngressSpec", ingress_spec, named("ingressClassName", is_subdomain))
rules("networking.v1.IngressRule", ingress_rule)
rules("networking.v1.HTTPIngressPath", ingress_path)
rules("networking.v1.IngressBackend", backend)
rules("networking.v1.IngressServiceBackend", needed("name"), named("name", is_label_1035))
rules("networking.v1.ServiceBackendPort", backend_port)
rules("networking.v1.IngressTLS", secured_hosts, named("secretName", is_subdomain))
rules("networking.v1.IngressClassParametersReference", *REFERENCE, parameters)
