"""What may be wrong with a pod spec, wherever it stands."""

from collections.abc import Iterator
from typing import Any

from matrixcontainer.kubeapi.builtin.checks import (
    Obj,
    among,
    different,
    labels,
    named,
    needed,
    not_negative,
    one_of,
    port,
    port_name_mistakes,
    port_or_name,
    rules,
)
from matrixcontainer.kubeapi.builtin.resource_names import requirements
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import is_label, is_subdomain
from matrixcontainer.kubeapi.meta.qualified_names import label_value_mistakes, qualified_mistakes

PROTOCOLS = ("SCTP", "TCP", "UDP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
ENV_NAME_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
PREEMPTION = ("PreemptLowerPriority", "Never")
SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
GROUPS = ("initContainers", "containers")


def env_name(name: str) -> str:
    return "" if all(" " <= letter <= "~" and letter != "=" for letter in name) else ENV_NAME_TEXT


def port_names(value: Obj, path: str) -> Iterator[Cause]:
    seen = set()
    for index, one in enumerate(value.get("ports") or []):
        name, where = one.get("name", ""), f"{path}.ports[{index}].name"
        mistakes = port_name_mistakes(name) if name else []
        yield from (errors.invalid(where, name, why) for why in mistakes)
        if name and name in seen:
            yield errors.duplicate(where, name)
        seen.add(name)


def value_source(value: Obj, path: str) -> Iterator[Cause]:
    """A variable says its value or names one source of it."""
    source, where = value.get("valueFrom"), f"{path}.valueFrom"
    if source is None:
        return
    current = [key for key in SOURCES if source.get(key) is not None]
    if not current:
        why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield errors.invalid(where, "", why)
    elif value.get("value"):
        yield errors.invalid(where, "", "may not be specified when `value` is not empty")
    elif len(current) > 1:
        yield errors.invalid(where, "", "may not have more than one field specified at a time")


def object_name(value: Obj, path: str) -> Iterator[Cause]:
    """The name of an object somewhere else; none at all is a bad one too."""
    if why := is_subdomain(value.get("name", "")):
        yield errors.invalid(f"{path}.name", value.get("name", ""), why)


def toleration(value: Obj, path: str) -> Iterator[Cause]:
    key, operator = value.get("key", ""), value.get("operator", "")
    text, effect = value.get("value", ""), value.get("effect", "")
    if key:
        yield from (errors.invalid(f"{path}.key", key, why) for why in qualified_mistakes(key))
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield errors.invalid(f"{path}.operator", operator, why)
    if value.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield errors.invalid(f"{path}.effect", effect, why)
    if operator in ("Equal", ""):
        if mistakes := label_value_mistakes(text):
            yield errors.invalid(f"{path}.operator", text, ";".join(mistakes))
    elif operator == "Exists":
        if text:
            yield errors.invalid(f"{path}.operator", text, "value must be empty when `operator` is 'Exists'")
    else:
        yield errors.not_supported(f"{path}.operator", operator, ["Equal", "Exists"])


def pod_spec(value: Obj, path: str) -> Iterator[Cause]:
    """What one part of a pod spec demands of another: containers that exist, and names that differ."""
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


def mounts(spec: Obj, path: str, beside: frozenset[str] = frozenset()) -> list[Cause]:
    """Mounts of volumes that the spec does not list. `beside` are volumes pods get besides those."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or []} | beside
    return [
        errors.not_found_value(f"{path}.{group}[{index}].volumeMounts[{place}].name", mount.get("name", ""))
        for group in GROUPS
        for index, container in enumerate(spec.get(group) or [])
        for place, mount in enumerate(container.get("volumeMounts") or [])
        if mount.get("name") not in volumes
    ]


def mount_paths(value: Obj, path: str) -> Iterator[Cause]:
    seen: set[Any] = set()
    for index, mount in enumerate(value.get("volumeMounts") or []):
        current = mount.get("mountPath", "")
        if current in seen:
            yield errors.invalid(f"{path}.volumeMounts[{index}].mountPath", current, "must be unique")
        seen.add(current)


CONTAINER = (
    needed("name", "image"),
    named("name", is_label),
    among("imagePullPolicy", *PULL_POLICIES, needed=True),
    among("terminationMessagePolicy", "File", "FallbackToLogsOnError", needed=True),
    port_names,
    mount_paths,
)
rules("core.v1.Container", *CONTAINER)
rules("core.v1.EphemeralContainer", *CONTAINER)
rules(
    "core.v1.ContainerPort",
    port("containerPort", zero="missing"),
    port("hostPort", zero="none"),
    among("protocol", *PROTOCOLS, needed=True),
)
rules("core.v1.EnvVar", needed("name"), named("name", env_name), value_source)
rules("core.v1.ObjectFieldSelector", needed("apiVersion", "fieldPath"))
rules("core.v1.SecretKeySelector", needed("key"), object_name)
rules("core.v1.ConfigMapKeySelector", needed("key"), object_name)
rules("core.v1.VolumeMount", needed("name", "mountPath"))
rules("core.v1.ResourceRequirements", requirements)
rules(
    "core.v1.Probe",
    one_of("handler type", "exec", "httpGet", "tcpSocket", "grpc"),
    not_negative("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
)
rules("core.v1.ExecAction", needed("command"))
rules("core.v1.HTTPGetAction", needed("path"), port_or_name("port"), among("scheme", "HTTP", "HTTPS"))
rules("core.v1.TCPSocketAction", port_or_name("port"))
rules("core.v1.GRPCAction", port("port"))
rules("core.v1.Toleration", toleration, among("effect", *EFFECTS))
rules("core.v1.Volume", needed("name"), named("name", is_label))
rules(
    "core.v1.PodSpec",
    pod_spec,
    among("restartPolicy", "Always", "OnFailure", "Never", needed=True),
    among("dnsPolicy", "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None", needed=True),
    among("preemptionPolicy", *PREEMPTION),
    labels("nodeSelector"),
    named("serviceAccountName", is_subdomain),
    named("nodeName", is_subdomain),
    named("hostname", is_label),
    named("subdomain", is_label),
    named("priorityClassName", is_subdomain),
    named("runtimeClassName", is_subdomain),
    different("volumes", "name"),
)
