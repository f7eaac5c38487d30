"""Print the table of built-in API types from the public Go sources of Kubernetes.

The table (`matrixcontainer/kubeapi/schema/types.json.gz`) says, for every struct reachable from the kinds we serve, how each field
is called in JSON, which protobuf number it has, its type, and how lists and maps merge. From this one table the server
reads protobuf bodies, refuses unknown fields, merges strategically and prints OpenAPI.

Source: modules k8s.io/api, k8s.io/apimachinery and k8s.io/apiextensions-apiserver at the version named below, licence
Apache-2.0, The Kubernetes Authors. Only names, numbers and markers are taken, no prose.

    go mod download -json k8s.io/api@v0.33.0 k8s.io/apimachinery@v0.33.0 k8s.io/apiextensions-apiserver@v0.33.0
    python -m tests.upkeep.kube_types "$(go env GOMODCACHE)"
"""

import contextlib
import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

VERSION = "v0.33.0"

PACKAGES = {  # name in the table: folder inside the module cache
    "meta.v1": "apimachinery@{v}/pkg/apis/meta/v1",
    "core.v1": "api@{v}/core/v1",
    "apps.v1": "api@{v}/apps/v1",
    "batch.v1": "api@{v}/batch/v1",
    "rbac.v1": "api@{v}/rbac/v1",
    "coordination.v1": "api@{v}/coordination/v1",
    "events.v1": "api@{v}/events/v1",
    "scheduling.v1": "api@{v}/scheduling/v1",
    "policy.v1": "api@{v}/policy/v1",
    "networking.v1": "api@{v}/networking/v1",
    "storage.v1": "api@{v}/storage/v1",
    "autoscaling.v1": "api@{v}/autoscaling/v1",
    "autoscaling.v2": "api@{v}/autoscaling/v2",
    "discovery.v1": "api@{v}/discovery/v1",
    "authentication.v1": "api@{v}/authentication/v1",
    "authorization.v1": "api@{v}/authorization/v1",
    "admissionregistration.v1": "api@{v}/admissionregistration/v1",
    "apiextensions.v1": "apiextensions-apiserver@{v}/pkg/apis/apiextensions/v1",
}

ROOTS = [
    "meta.v1.DeleteOptions", "meta.v1.Status", "meta.v1.ObjectMeta",
    "core.v1.Namespace", "core.v1.ConfigMap", "core.v1.Secret", "core.v1.ServiceAccount", "core.v1.Event",
    "core.v1.Node", "core.v1.Pod", "core.v1.Binding", "core.v1.Service",
    "core.v1.PersistentVolume", "core.v1.PersistentVolumeClaim",
    "core.v1.ReplicationController",
    "apps.v1.Deployment", "apps.v1.ReplicaSet", "apps.v1.StatefulSet", "apps.v1.DaemonSet",
    "batch.v1.Job", "batch.v1.CronJob",
    "rbac.v1.Role", "rbac.v1.RoleBinding", "rbac.v1.ClusterRole", "rbac.v1.ClusterRoleBinding",
    "coordination.v1.Lease", "events.v1.Event", "scheduling.v1.PriorityClass",
    "policy.v1.PodDisruptionBudget", "policy.v1.Eviction",
    "networking.v1.Ingress", "networking.v1.NetworkPolicy",
    "storage.v1.StorageClass", "storage.v1.CSINode", "storage.v1.CSIDriver", "storage.v1.VolumeAttachment",
    "storage.v1.CSIStorageCapacity",
    "autoscaling.v1.Scale", "autoscaling.v2.HorizontalPodAutoscaler", "discovery.v1.EndpointSlice",
    "authentication.v1.TokenReview", "authentication.v1.SelfSubjectReview", "authentication.v1.TokenRequest",
    "authorization.v1.SelfSubjectAccessReview", "authorization.v1.SubjectAccessReview",
    "authorization.v1.LocalSubjectAccessReview", "authorization.v1.SelfSubjectRulesReview",
    "admissionregistration.v1.ValidatingWebhookConfiguration", "admissionregistration.v1.MutatingWebhookConfiguration",
    "apiextensions.v1.CustomResourceDefinition",
]  # fmt: skip

LEAVES = {  # types with a form of their own in JSON; the server knows each by name
    "meta.v1.Time": "time", "meta.v1.MicroTime": "microtime", "meta.v1.Duration": "duration",
    "meta.v1.FieldsV1": "fields", "runtime.RawExtension": "raw", "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring", "apiextensions.v1.JSON": "json", "apiextensions.v1.JSONSchemaProps": "raw",
    "types.UID": "string", "types.NodeName": "string", "types.NamespacedName": "string",
}  # fmt: skip
SCALARS = {
    "string", "bool", "int32", "int64", "float64", "int", "uint8", "byte", "uint32", "uint64", "float32", "rune",
}  # fmt: skip

TYPE = re.compile(r"^type (\w+) (.+)$")
FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.*\[\]]+(?:\[\w+\][\w.*\[\]]+)?)\s+`([^`]*)`")
MARKER = re.compile(r"^\s*//\s*\+([\w:.-]+)(?:=(.*))?$")


def read_package(name: str, folder: Path) -> dict[str, Any]:
    """All named types of one Go package: structs as lists of raw fields, others as the text of what they stand for."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*types*.go")):
        if path.name.endswith("_test.go") or "swagger" in path.name:
            continue
        markers: dict[str, list[str]] = {}
        struct: list[Any] | None = None
        for line in path.read_text().splitlines():
            if marker := MARKER.match(line):
                markers.setdefault(marker[1], []).append((marker[2] or "").strip())
                continue
            if line.strip().startswith("//"):
                continue
            if struct is not None:
                if line == "}":
                    struct = None
                elif field := FIELD.match(line):
                    struct.append((field[2], field[3], dict(markers)))
                markers = {}
            elif match := TYPE.match(line):
                if match[2] == "struct{}":
                    found[f"{name}.{match[1]}"] = []
                elif match[2] == "struct {":
                    struct = found[f"{name}.{match[1]}"] = []
                elif not match[2].startswith(("interface", "func", "(")):
                    wrapped = "protobuf.nullable" in markers and match[2].startswith("[]")
                    found[f"{name}.{match[1]}"] = ("wrapped:" if wrapped else "") + match[2].split(" //")[0].strip()
                markers = {}
            elif line.strip() == "" and struct is None:
                pass
            else:
                markers = {}
    return found


IMPORTS = {"metav1": "meta.v1", "apiv1": "core.v1", "v1": "core.v1", "corev1": "core.v1", "v11": "core.v1"}


def resolve(text: str, package: str, types: dict[str, Any]) -> str:
    """The table's word for a Go type: a scalar, a leaf, `[]X`, `map:X`, `wrapped:X` or the name of a struct."""
    text = text.lstrip("*")
    if text in ("[]byte",):
        return "bytes"
    if text.startswith("[]"):
        return "[]" + resolve(text[2:], package, types)
    if text.startswith("map["):
        return "map:" + resolve(text.split("]", 1)[1], package, types)
    if text in SCALARS:
        return text
    if "." in text:
        prefix, word = text.split(".", 1)
        name = f"{IMPORTS.get(prefix, prefix)}.{word}"
        if prefix == "v1" and name not in types:
            name = f"meta.v1.{word}"
    else:
        name = f"{package}.{text}"
    if name in LEAVES:
        return LEAVES[name]
    target = types.get(name)
    if target is None:
        raise KeyError(f"{text} in {package} is not among the packages read")
    if isinstance(target, str):
        owner = name.rsplit(".", 1)[0]
        if target.startswith("wrapped:"):
            return "wrapped:" + resolve(target[len("wrapped:") + 2 :], owner, types)
        return resolve(target, owner, types)
    return name


def describe_field(
    go_type: str, tags: str, markers: dict[str, list[str]], package: str, types: dict[str, Any]
) -> list[Any]:
    """One row: [json name ("" when inlined), protobuf number, type, flags, extras]; flags: p pointer, o omitempty."""
    tag = dict(re.findall(r'(\w+):"([^"]*)"', tags))
    name, *options = tag.get("json", "").split(",")
    number = int(tag["protobuf"].split(",")[1]) if "protobuf" in tag else 0
    flags = ("p" if go_type.startswith("*") else "") + ("o" if "omitempty" in options else "")
    if "optional" in markers or "omitempty" in options:
        flags += "?"
    extras: dict[str, Any] = {}
    for source, key in (("patchStrategy", "strategy"), ("patchMergeKey", "mergeKey")):
        if value := tag.get(source) or (markers.get(source) or [""])[0]:
            extras[key] = value
    if list_type := markers.get("listType"):
        extras["listType"] = list_type[0]
    if keys := markers.get("listMapKey"):
        extras["listKeys"] = keys
    if map_type := (markers.get("mapType") or markers.get("structType")):
        extras["mapType"] = map_type[0]
    if default := markers.get("default"):
        with contextlib.suppress(ValueError):  # a Go constant: the kinds' own defaults state those
            extras["default"] = json.loads(default[0])
    if "inline" in options or (not name and "json" in tag):
        name = ""
    return [name, number, resolve(go_type, package, types), flags, *([extras] if extras else [])]


def build_table(module_cache: Path) -> dict[str, Any]:
    types: dict[str, Any] = {}
    for name, folder in PACKAGES.items():
        types |= read_package(name, module_cache / "k8s.io" / folder.format(v=VERSION))
    table: dict[str, Any] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in table:
            continue
        if not isinstance(types.get(name), list):
            raise KeyError(f"{name} is not a struct that was read")
        package = name.rsplit(".", 1)[0]
        rows = []
        for go_type, tags, markers in types[name]:
            if "json:" not in tags or 'json:"-"' in tags or "TypeMeta" in go_type:
                continue
            row = describe_field(go_type, tags, markers, package, types)
            rows.append(row)
            inner = row[2].replace("[]", "").replace("map:", "").replace("wrapped:", "")
            if "." in inner:
                waiting.append(inner)
        table[name] = rows
    return dict(sorted(table.items()))


def main(module_cache: str) -> None:
    document = {"source": f"k8s.io/api {VERSION} (Apache-2.0)", "types": build_table(Path(module_cache))}
    text = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    target = Path(__file__).resolve().parents[2] / "matrixcontainer/kubeapi/schema/types.json.gz"
    target.write_bytes(gzip.compress(text, mtime=0))
    print(f"{target.name}: {len(document['types'])} types, {len(text)} bytes, {target.stat().st_size} compressed")


if __name__ == "__main__":
    main(sys.argv[1])
