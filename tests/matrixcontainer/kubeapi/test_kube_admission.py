"""What the API itself says when a pod cannot run here, or nothing acts on an object."""

from __future__ import annotations

from typing import Any

from matrixcontainer.kubeapi.admission.inert_kinds import CONSEQUENCES
from matrixcontainer.kubeapi.builtin.kinds import KINDS
from tests.matrixcontainer.kubeapi.api_session import ApiSession
from tests.matrixcontainer.kubeapi.controllers.test_controllers_kubelets import a_pod
from tests.matrixcontainer.kubeapi.virtual import DEPLOYMENTS, NS, PODS, Cluster, a_deployment, in_virtual_time

STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"


async def test_a_pod_of_an_unknown_service_account_is_refused(session: ApiSession) -> None:
    pod = a_pod(serviceAccountName="builder")
    refused = await session.post(PODS, pod)
    assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
    assert refused.body["message"] == (
        'pods "box" is forbidden: error looking up service account default/builder: serviceaccount "builder" not found'
    )
    elsewhere = await session.post("/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "builder"}})
    assert elsewhere.code == 201
    assert (await session.post(PODS, pod)).code == 403
    assert (await session.post(f"{NS}/serviceaccounts", {"metadata": {"name": "builder"}})).code == 201
    assert (await session.post(PODS, pod)).code == 201
    assert (await session.post(PODS, a_pod(name="plain"))).code == 201


@in_virtual_time
async def test_a_deployment_of_an_unknown_service_account_says_so_and_recovers(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=1, pod={"serviceAccountName": "builder"}))

    def failed(body: Any) -> bool:
        return any(
            "error looking up service account default/builder" in event["message"]
            for event in body["items"]
            if event["reason"] == "FailedCreate"
        )

    await cluster.eventually(f"{NS}/events", failed)
    await cluster.create(f"{NS}/serviceaccounts", {"metadata": {"name": "builder"}})
    await cluster.eventually(f"{DEPLOYMENTS}/web", lambda b: b["status"].get("readyReplicas") == 1)


async def test_creating_what_nothing_acts_on_is_answered_with_a_warning(session: ApiSession) -> None:
    body = a_deployment(replicas=1, serviceName="web")
    created = await session.post(STATEFUL_SETS, body)
    assert created.code == 201
    assert created.warnings == [
        '299 - "nothing here acts on statefulsets: stored and served, but no pods are created; '
        'Deployments, DaemonSets and Jobs create theirs"'
    ]
    assert (await session.patch(f"{STATEFUL_SETS}/web", {"spec": {"replicas": 2}})).warnings == []
    assert (await session.post(DEPLOYMENTS, a_deployment(replicas=0))).warnings == []


def test_warnings_are_about_kinds_that_nothing_acts_on() -> None:
    inert = {kind.plural + (f".{kind.group}" if kind.group else "") for kind in KINDS if not kind.acts}
    assert set(CONSEQUENCES) <= inert
