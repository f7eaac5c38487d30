"""The product's own definitions on any API server: how they gain a version, and what their rules refuse."""

from typing import Any

from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.schemas.definition_frame import VERSION
from tests.conformance.api_session import ApiSession
from tests.conformance.cases.definitions import unique
from tests.conformance.catalogue import case
from tests.conformance.things import CRDS

NEXT = "v1beta1"


def ours(group: str, versions: tuple[str, ...], storage: str) -> dict[str, Any]:
    """The definition of CloudMatrixInstance, in a group of the case's own."""
    crd = custom_resource_definitions(versions, storage)[0]
    crd["spec"]["group"] = group
    crd["metadata"]["name"] = f"cloudmatrixinstances.{group}"
    return crd


def told(reported: Any) -> dict[str, Any]:
    """What must not be lost of an object, whatever version it is read in."""
    metadata = reported["metadata"]
    kept = {key: metadata.get(key) for key in ("name", "labels", "finalizers", "generation", "uid")}
    return {"metadata": kept, "spec": reported["spec"], "status": reported.body.get("status")}


@case("P1", "CustomResourceConversionWebhook (the same steps, with nothing to convert)")
def our_kinds_gain_a_version(session: ApiSession) -> None:
    group = unique(session)
    path = f"{CRDS}/cloudmatrixinstances.{group}"

    def serve(versions: tuple[str, ...], storage: str) -> None:
        session.apply(path, ours(group, versions, storage), "operator", want=None, note=False)
        for version in versions:
            session.until(things(version), lambda reported: reported.code == 200, note=False)

    def things(version: str, name: str = "") -> str:
        return f"~{group}/{version}/cloudmatrixinstances" + (f"/{name}" if name else "")

    def one(name: str, version: str, **spec: Any) -> dict[str, Any]:
        metadata = {"name": name, "labels": {"of": version}, "finalizers": ["cloudmatrix.io/operator"]}
        head = {"apiVersion": f"{group}/{version}", "kind": "CloudMatrixInstance", "metadata": metadata}
        return head | {"spec": {"nodes": 4} | spec}

    serve((VERSION,), VERSION)
    session.post(things(VERSION), one("old", VERSION, spares=1, placement={"policy": "spread"}), note=False)
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}
    status = {"state": "Active", "readyNodes": 4, "members": [{"node": "a", "conditions": [condition]}]}
    session.patch(f"{things(VERSION, 'old')}/status", {"status": status}, note=False)
    before = told(session.get(things(VERSION, "old"), note=False))
    assert before["status"] == status

    serve((VERSION, NEXT), VERSION)  # served beside it
    assert told(session.get(things(NEXT, "old"), note=False)) == before
    session.post(things(NEXT), one("new", NEXT), note=False)

    serve((VERSION, NEXT), NEXT)  # stored from now on
    stored = session.until(path, lambda reported: len(reported["status"]["storedVersions"]) == 2, note=False)
    session.note("stored", stored["status"]["storedVersions"])
    assert {told(session.get(things(version, "old"), note=False))["spec"]["nodes"] for version in (VERSION, NEXT)} == {
        4
    }
    dropping = ours(group, (NEXT,), NEXT)
    session.note(
        "too early", session.apply(path, dropping, "operator", want=422, note=False).message.replace(group, "GROUP")
    )

    for name in ("old", "new"):  # written once in the new version
        body = session.get(things(NEXT, name), note=False).body
        session.put(things(NEXT, name), body, note=False)
    session.patch(f"{path}/status", {"status": {"storedVersions": [NEXT]}}, note=False)
    serve((NEXT,), NEXT)
    session.until(things(VERSION), lambda reported: reported.code == 404, note=False)
    after = session.get(things(NEXT), note=False)
    assert sorted(item["metadata"]["name"] for item in after["items"]) == ["new", "old"]
    assert told(session.get(things(NEXT, "old"), note=False)) == before
    session.note("both", [[item["apiVersion"].replace(group, "GROUP"), item["spec"]] for item in after["items"]])


@case("P1")
def our_kinds_refuse(session: ApiSession) -> None:
    group = unique(session)
    session.post(CRDS, ours(group, (VERSION,), VERSION), note=False)
    path = f"~{group}/{VERSION}/cloudmatrixinstances"
    session.until(path, lambda reported: reported.code == 200, note=False)
    body = {"apiVersion": f"{group}/{VERSION}", "kind": "CloudMatrixInstance", "metadata": {"name": "one"}}
    session.post(path, body | {"spec": {"nodes": 2, "network": {"ub": {"ceilingGbpsPerNpu": 50}}}})
    changes: list[dict[str, Any]] = [
        {"nodes": 0},
        {"nodes": 10**9},
        {"nodes": None},
        {"placement": {"policy": "anyhow"}},
        {"network": {"ub": {"floorGbpsPerNpu": 60}}},
        {"network": {"vpc": {"qosClass": "Platinum"}}},
    ]
    for change in changes:
        session.note(str(change), session.patch(f"{path}/one", {"spec": change}, want=422, note=False).message)
    session.patch(f"{path}/one", {"spec": {"placement": {"policy": "spread"}}})
