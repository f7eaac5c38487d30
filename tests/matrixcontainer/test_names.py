"""What the services could not be asked for under a resource's name is refused when it is created, by that field."""

from __future__ import annotations

import pytest

from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.schemas.definition_frame import GROUP, VERSION
from tests.matrixcontainer.kubeapi.api_session import a_server

MIRRORS = ("supernodes", "networkslices")


@pytest.mark.parametrize("name", ["t1.red", "a" * 64])
async def test_invalid_name_is_refused_with_its_field(name):
    async with a_server() as session:
        for crd in custom_resource_definitions():
            await session.define(crd)
            names, scope = crd["spec"]["names"], crd["spec"]["scope"]
            place = "" if scope == "Cluster" else "/namespaces/default"
            body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": names["kind"], "metadata": {"name": name}, "spec": {}}
            answer = await session.post(f"/apis/{GROUP}/{VERSION}{place}/{names['plural']}", body)
            if names["plural"] in MIRRORS:
                assert answer.code == 201
            else:
                assert answer.code == 422
                assert "metadata.name" in [cause["field"] for cause in answer.body["details"]["causes"]], names


async def test_instance_names_leave_room_for_slice_names():
    async with a_server() as session:
        await session.define(custom_resource_definitions()[0])
        path = f"/apis/{GROUP}/{VERSION}/namespaces/default/cloudmatrixinstances"
        for length, code in ((57, 201), (58, 422)):
            metadata = {"name": "a" * length}
            body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "CloudMatrixInstance", "metadata": metadata}
            assert (await session.post(path, body | {"spec": {"nodes": 1}})).code == code
