"""`kubectl explain`: every field of every kind of ours is described, as the API tells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.schemas.definition_frame import GROUP, VERSION
from tests.matrixcontainer.kubeapi.api_session import a_server

EXPLAINED_BY_THE_API = ("apiVersion", "kind", "metadata")


def undescribed(path: str, schema: dict[str, Any]) -> Iterator[str]:
    if not schema.get("description"):
        yield path
    for name, child in schema.get("properties", {}).items():
        if not (path.count(".") == 0 and name in EXPLAINED_BY_THE_API):
            yield from undescribed(f"{path}.{name}", child)
    items = schema.get("items")
    if isinstance(items, dict):
        for name, child in items.get("properties", {}).items():
            yield from undescribed(f"{path}[].{name}", child)


async def test_every_field_of_every_kind_is_described():
    definitions = custom_resource_definitions()
    async with a_server() as session:
        for crd in definitions:
            await session.define(crd)
        document = (await session.get(f"/openapi/v3/apis/{GROUP}/{VERSION}")).body
    schemas = document["components"]["schemas"]
    for crd in definitions:
        kind = crd["spec"]["names"]["kind"]
        schema = next(each for name, each in schemas.items() if name.endswith(f".{kind}"))
        assert list(undescribed(kind, schema)) == []
        conditions = schema["properties"]["status"]["properties"]["conditions"]["items"]["properties"]
        assert {"type", "status", "reason", "message", "observedGeneration", "lastTransitionTime"} <= set(conditions)


async def test_mirrored_fields_are_in_their_schemas():
    kinds = {crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0] for crd in custom_resource_definitions()}
    for kind, fields in (
        ("Supernode", {"availableNodes", "lostNodes", "topologyVersion"}),
        ("NetworkSlice", {"isolation", "isolationKey", "programmed", "floorKeptGbpsPerNpu", "members"}),
    ):
        properties = kinds[kind]["schema"]["openAPIV3Schema"]["properties"]
        assert fields <= set(properties["status"]["properties"])


def test_definitions_are_copies():
    for crd in custom_resource_definitions():
        crd["metadata"]["name"] = "another"
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clear()
    for crd in custom_resource_definitions():
        assert crd["metadata"]["name"] == f"{crd['spec']['names']['plural']}.{crd['spec']['group']}"
        assert crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
