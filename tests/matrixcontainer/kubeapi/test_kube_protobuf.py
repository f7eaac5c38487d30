"""Protobuf in both directions: what is written can be read again, and is what Go writes."""

from typing import Any

import pytest

from matrixcontainer.kubeapi.codec.protobuf_decode import MAGIC, decode_body, decode_message
from matrixcontainer.kubeapi.codec.protobuf_encode import NoProtobufForm, encode_body, encode_message
from matrixcontainer.kubeapi.schema.types import table

META = {
    "name": "one",
    "namespace": "default",
    "uid": "u-1",
    "creationTimestamp": "2026-11-21T10:00:00Z",
    "labels": {"a": "b", "c": "d"},
    "managedFields": [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}],
}
POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": META,
    "spec": {
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "containers": [
            {
                "name": "c",
                "image": "i:1",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"huawei.com/Ascend910": "8"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
            }
        ],
        "terminationGracePeriodSeconds": 30,
    },
}
LEASE = {
    "kind": "Lease",
    "apiVersion": "coordination.k8s.io/v1",
    "metadata": META,
    "spec": {"holderIdentity": "me", "renewTime": "2026-11-21T10:00:00.123456Z", "leaseTransitions": 3},
}
SECRET = {"kind": "Secret", "apiVersion": "v1", "metadata": META, "data": {"k": "AAEC"}, "type": "Opaque"}
BUDGET = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": META, "spec": {"minAvailable": "50%"}}


@pytest.mark.parametrize("obj", [POD, LEASE, SECRET, BUDGET], ids=lambda obj: obj["kind"])
def test_what_is_written_can_be_read(obj: dict[str, Any]) -> None:
    found = decode_body(encode_body(obj))
    for key, value in obj.items():
        assert found[key] | value == found[key] if isinstance(value, dict) and key == "spec" else found[key] == value


def test_a_config_map_is_the_bytes_that_go_writes() -> None:
    body = encode_body({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}})
    unknown = (
        b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap" + b"\x12\x0d" + b"\x0a\x03\x0a\x01a" + b"\x12\x06\x0a\x01k\x12\x01v"
    )
    assert body == MAGIC + unknown + b"\x1a\x00\x22\x00"


def test_lists_carry_their_revision_and_items() -> None:
    listed = {"kind": "SecretList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [SECRET, SECRET]}
    body = encode_body(listed)
    assert body.count(b"Opaque") == 2
    assert encode_message({"resourceVersion": "7"}, "meta.v1.ListMeta") in body


def test_kinds_of_definitions_have_no_such_form() -> None:
    with pytest.raises(NoProtobufForm):
        encode_body({"kind": "Widget", "apiVersion": "a.test/v1", "metadata": META})


@pytest.mark.parametrize("name", sorted(table())[::8])
def test_types_of_the_table_can_be_written_empty(name: str) -> None:
    assert decode_message(encode_message({}, name), name) is not None
