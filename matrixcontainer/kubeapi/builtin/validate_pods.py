"""Validation of pod specs, in pods and in templates."""

from collections.abc import Iterator
from typing import Any

from matrixcontainer.kubeapi.builtin.checks import (
    NOT_NEGATIVE,
    Obj,
    enum,
    exactly_one,
    labels,
    not_negative,
    port,
    port_name_errors,
    port_or_name,
    required,
    rules,
    text_checks,
    unique,
)
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import label_error, subdomain_error
from matrixcontainer.kubeapi.meta.qualified_names import label_value_errors, qualified_name_errors
from matrixcontainer.kubeapi.meta.quantities import amount, parse_int

PROTOCOLS = ("SCTP", "TCP", "UDP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
ENV_NAME_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
PREEMPTION = ("PreemptLowerPriority", "Never")
SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
GROUPS = ("initContainers", "containers")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
NO_COST = -(2**31)


def env_name(name: str) -> str:
    return "" if all(" " <= letter <= "~" and letter != "=" for letter in name) else ENV_NAME_TEXT


def validate_port_names(value: Obj, path: str) -> Iterator[Cause]:
    seen = set()
    for index, one in enumerate(value.get("ports") or []):
        name, where = one.get("name", ""), f"{path}.ports[{index}].name"
        messages = port_name_errors(name) if name else []
        yield from (errors.invalid(where, name, message) for message in messages)
        if name and name in seen:
            yield errors.duplicate(where, name)
        seen.add(name)


def validate_value_source(value: Obj, path: str) -> Iterator[Cause]:
    """An environment variable has either a value or exactly one source."""
    source, where = value.get("valueFrom"), f"{path}.valueFrom"
    if source is None:
        return
    current = [key for key in SOURCES if source.get(key) is not None]
    if not current:
        message = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield errors.invalid(where, "", message)
    elif value.get("value"):
        yield errors.invalid(where, "", "may not be specified when `value` is not empty")
    elif len(current) > 1:
        yield errors.invalid(where, "", "may not have more than one field specified at a time")


def validate_object_name(value: Obj, path: str) -> Iterator[Cause]:
    """The name of a referenced object, which must not be empty."""
    if message := subdomain_error(value.get("name", "")):
        yield errors.invalid(f"{path}.name", value.get("name", ""), message)


def validate_toleration(value: Obj, path: str) -> Iterator[Cause]:
    key, operator = value.get("key", ""), value.get("operator", "")
    text, effect = value.get("value", ""), value.get("effect", "")
    if key:
        yield from (errors.invalid(f"{path}.key", key, message) for message in qualified_name_errors(key))
    elif operator != "Exists":
        message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield errors.invalid(f"{path}.operator", operator, message)
    if value.get("tolerationSeconds") is not None and effect != "NoExecute":
        message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield errors.invalid(f"{path}.effect", effect, message)
    if operator in ("Equal", ""):
        if messages := label_value_errors(text):
            yield errors.invalid(f"{path}.operator", text, ";".join(messages))
    elif operator == "Exists":
        if text:
            yield errors.invalid(f"{path}.operator", text, "value must be empty when `operator` is 'Exists'")
    else:
        yield errors.not_supported(f"{path}.operator", operator, ["Equal", "Exists"])


def validate_pod_spec(value: Obj, path: str) -> Iterator[Cause]:
    """Rules across a pod spec: at least one container, unique container names, and a valid deadline."""
    if not value.get("containers"):
        yield errors.required(f"{path}.containers")
    seen: set[str] = set()
    for group in GROUPS:
        for index, container in enumerate(value.get(group) or []):
            name = container.get("name", "")
            if name and name in seen:
                yield errors.duplicate(f"{path}.{group}[{index}].name", name)
            seen.add(name)
    deadline = value.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        yield errors.invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")


def validate_deletion_cost(value: Obj, path: str) -> Iterator[Cause]:
    """The pod-deletion-cost annotation must be a 32-bit integer."""
    text = ((value.get("metadata") or {}).get("annotations") or {}).get(DELETION_COST)
    if text is not None and parse_int(text, NO_COST) == NO_COST:
        where = f"{path}.metadata.annotations[{DELETION_COST}]".lstrip(".")
        yield errors.invalid(where, text, "must be a 32bit integer")


def validate_mounts(spec: Obj, path: str, extra_volumes: frozenset[str] = frozenset()) -> list[Cause]:
    """Errors for mounts of undefined volumes. `extra_volumes` are volumes that pods get in addition to the spec's."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or []} | extra_volumes
    return [
        errors.not_found_value(f"{path}.{group}[{index}].volumeMounts[{place}].name", mount.get("name", ""))
        for group in GROUPS
        for index, container in enumerate(spec.get(group) or [])
        for place, mount in enumerate(container.get("volumeMounts") or [])
        if mount.get("name") not in volumes
    ]


def validate_mount_paths(value: Obj, path: str) -> Iterator[Cause]:
    seen: set[Any] = set()
    for index, mount in enumerate(value.get("volumeMounts") or []):
        current = mount.get("mountPath", "")
        if current in seen:
            yield errors.invalid(f"{path}.volumeMounts[{index}].mountPath", current, "must be unique")
        seen.add(current)


# ---- names and amounts of resources in requests and limits

COMPUTE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
HUGE_PAGES = "hugepages-"
MUST_BE_INTEGER = "must be an integer"


def is_native_resource(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended_resource(name: str) -> bool:
    return (
        not is_native_resource(name)
        and not name.startswith("requests.")
        and not qualified_name_errors(f"requests.{name}")
    )


def may_overcommit(name: str) -> bool:
    return is_native_resource(name) and not name.startswith(HUGE_PAGES)


def validate_container_resource(name: str, path: str) -> list[Cause]:
    shown = errors.Verbatim(name)
    found = [errors.invalid(path, shown, message) for message in qualified_name_errors(name)]
    if "/" not in name:
        if name not in COMPUTE_RESOURCES and not name.startswith(HUGE_PAGES):
            if not found:
                found.append(errors.invalid(path, shown, "must be a standard resource type or fully qualified"))
            found.append(errors.invalid(path, shown, "must be a standard resource for containers"))
    elif not is_native_resource(name) and not is_extended_resource(name):
        found.append(errors.invalid(path, shown, "doesn't follow extended resource name standard"))
    return found


def validate_quantity(name: str, text: str, path: str) -> Iterator[Cause]:
    number = amount(text)
    if number < 0:
        yield errors.invalid(path, text, NOT_NEGATIVE)
    if is_extended_resource(name) and number.denominator != 1:
        yield errors.invalid(path, text, MUST_BE_INTEGER)


def validate_resource_list(current: Obj, path: str) -> Iterator[Cause]:
    for name, text in current.items():
        where = f"{path}[{name}]"
        yield from validate_container_resource(name, where)
        yield from validate_quantity(name, text, where)


def validate_requirements(value: Obj, path: str) -> Iterator[Cause]:
    """Requests and limits of a container; for resources that cannot be overcommitted they must be equal."""
    limits, requests = value.get("limits") or {}, value.get("requests") or {}
    yield from validate_resource_list(limits, f"{path}.limits")
    yield from validate_resource_list(requests, f"{path}.requests")
    for name, text in requests.items():
        where = f"{path}.requests"
        if name not in limits:
            if not may_overcommit(name):
                yield errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif amount(text) != amount(limits[name]) and not may_overcommit(name):
            yield errors.invalid(where, text, f"must be equal to {name} limit of {limits[name]}")
        elif amount(text) > amount(limits[name]):
            yield errors.invalid(where, text, f"must be less than or equal to {name} limit of {limits[name]}")


# ---- which struct has which rules

rules(
    "core.v1.Container",
    required("name", "image"),
    text_checks("name", label_error),
    enum("imagePullPolicy", *PULL_POLICIES, required=True),
    enum("terminationMessagePolicy", "File", "FallbackToLogsOnError", required=True),
    validate_port_names,
    validate_mount_paths,
)
rules(
    "core.v1.ContainerPort",
    port("containerPort", zero="missing"),
    port("hostPort", zero="none"),
    enum("protocol", *PROTOCOLS, required=True),
)
rules("core.v1.EnvVar", required("name"), text_checks("name", env_name), validate_value_source)
rules("core.v1.ObjectFieldSelector", required("apiVersion", "fieldPath"))
rules("core.v1.SecretKeySelector", required("key"), validate_object_name)
rules("core.v1.ConfigMapKeySelector", required("key"), validate_object_name)
rules("core.v1.VolumeMount", required("name", "mountPath"))
rules("core.v1.ResourceRequirements", validate_requirements)
rules(
    "core.v1.Probe",
    exactly_one("handler type", "exec", "httpGet", "tcpSocket", "grpc"),
    not_negative("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
)
rules("core.v1.ExecAction", required("command"))
rules("core.v1.HTTPGetAction", required("path"), port_or_name("port"), enum("scheme", "HTTP", "HTTPS"))
rules("core.v1.TCPSocketAction", port_or_name("port"))
rules("core.v1.GRPCAction", port("port"))
rules("core.v1.Toleration", validate_toleration, enum("effect", *EFFECTS))
rules("core.v1.Volume", required("name"), text_checks("name", label_error))
rules("core.v1.Pod", validate_deletion_cost)
rules("core.v1.PodTemplateSpec", validate_deletion_cost)
rules(
    "core.v1.PodSpec",
    validate_pod_spec,
    enum("restartPolicy", "Always", "OnFailure", "Never", required=True),
    enum("dnsPolicy", "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None", required=True),
    enum("preemptionPolicy", *PREEMPTION),
    labels("nodeSelector"),
    text_checks("serviceAccountName", subdomain_error),
    text_checks("nodeName", subdomain_error),
    text_checks("hostname", label_error),
    text_checks("subdomain", label_error),
    text_checks("priorityClassName", subdomain_error),
    text_checks("runtimeClassName", subdomain_error),
    unique("volumes", "name"),
)
