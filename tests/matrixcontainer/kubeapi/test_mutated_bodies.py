"""Bodies wrong in any one field: refused with a status that says so, or taken; whatever was taken, everybody else is
served as before, also by a server that starts on it."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.api_session import a_crd
from tests.matrixcontainer.kubeapi.virtual import (
    APPS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    Cluster,
    a_deployment,
    in_virtual_time,
    rolled_out,
)

VALUES: list[Any] = [
    None, "", "x" * 300, "--5", "1k", "12:30", "a\x00b", "²", "*", -1, 0, 2**63, 10**400, 1.5, True, [], {}, [None], {"x": None},
]  # fmt: skip
"""Of each type, at its bounds and beyond. What is valid and merely large (a million replicas) is load, and not here."""

RESTART_AFTER = 100
"""So many bodies between two lives of the server."""

POD_SPEC = {
    "restartPolicy": "Always",
    "priority": 0,
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        },
    },
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "terminationGracePeriodSeconds": 5,
    "activeDeadlineSeconds": 60,
    "schedulingGates": [{"name": "example.com/gate"}],
    "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
    "containers": [
        {
            "name": "c",
            "image": "i",
            "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}],
            "env": [{"name": "E", "value": "v"}],
            "resources": {"requests": {"cpu": "1m", "huawei.com/Ascend910": "0"}, "limits": {"memory": "1Mi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5},
        }
    ],
}
NOTES = {"controller.kubernetes.io/pod-deletion-cost": "5", "kueue.x-k8s.io/podset-required-topology": "zone"}
METADATA = {"labels": {"a": "b"}, "annotations": NOTES, "finalizers": ["example.com/f"], "ownerReferences": [],
            "generateName": "g-"}  # fmt: skip
TEMPLATE = {"metadata": {"labels": {"a": "b"}, "annotations": NOTES}, "spec": POD_SPEC}
HOOK = {
    "name": "hook.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/hook", "caBundle": ""},
    "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]}],
    "matchConditions": [{"name": "always", "expression": "true"}],
    "failurePolicy": "Ignore",
    "sideEffects": "None",
    "timeoutSeconds": 1,
    "admissionReviewVersions": ["v1"],
}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

BODIES: dict[str, dict[str, Any]] = {
    PODS: {"metadata": METADATA, "spec": POD_SPEC},
    DEPLOYMENTS: {
        "metadata": METADATA,
        "spec": {
            "replicas": 1,
            "minReadySeconds": 1,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": 60,
            "paused": False,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
            "selector": {"matchLabels": {"a": "b"}},
            "template": TEMPLATE,
        },
    },
    JOBS: {
        "metadata": METADATA,
        "spec": {
            "parallelism": 1,
            "completions": 2,
            "completionMode": "Indexed",
            "backoffLimit": 1,
            "activeDeadlineSeconds": 60,
            "ttlSecondsAfterFinished": 60,
            "suspend": False,
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {**TEMPLATE, "spec": {**POD_SPEC, "restartPolicy": "Never"}},
        },
    },
    DEFINITIONS: a_crd(rules=[{"rule": "self.spec.size > 0", "message": "small"}]),
    HOOKS: {"metadata": {"name": "hooks"}, "webhooks": [HOOK]},
}


def paths_of(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every field of it stands, the outermost first."""
    if path:
        yield path
    if isinstance(body, dict | list):
        for key in body if isinstance(body, dict) else range(len(body)):
            yield from paths_of(body[key], (*path, key))


def mutated(collection: str, path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The body with another value in one place."""
    body = copy.deepcopy(BODIES[collection])
    place: Any = body
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return body


MUTATIONS = [
    (collection, path, value) for collection, body in BODIES.items() for path in paths_of(body) for value in VALUES
]


async def live(cluster: Cluster, mutations: list[tuple[str, tuple[Any, ...], Any]]) -> int:
    """Send them all; how many were taken."""
    taken = 0
    await cluster.node("n1", pods="10000", cpu="10000", memory="10000Gi")
    for number, (collection, path, value) in enumerate(mutations, 1):
        body = mutated(collection, path, value)
        metadata = body.get("metadata")
        if collection in (PODS, DEPLOYMENTS, JOBS) and isinstance(metadata, dict):
            metadata["name"] = f"m{number}"
        answer = await cluster.post(collection, body)
        where = f"{collection} {'.'.join(map(str, path))} = {str(value)[:40]!r}: {answer.code} {answer.body}"
        assert answer.code in (201, 400, 403, 409, 422), where
        assert answer.code == 201 or answer.body["message"], where
        taken += answer.code == 201
        if number % RESTART_AFTER == 0 or number == len(mutations):
            await assert_others_are_served(cluster, f"before-{number}")
            await cluster.restart()
            await assert_others_are_served(cluster, f"after-{number}")
            await clear(cluster)
    return taken


async def assert_others_are_served(cluster: Cluster, name: str) -> None:
    """A deployment that somebody else makes is rolled out."""
    await cluster.create(DEPLOYMENTS, a_deployment(name, replicas=2))
    await cluster.eventually(f"{DEPLOYMENTS}/{name}", rolled_out, within_s=300)


async def clear(cluster: Cluster) -> None:
    """Take away what was taken, finalizers and all."""
    for collection in (HOOKS, DEFINITIONS, DEPLOYMENTS, JOBS, f"{APPS}/replicasets", PODS):
        for item in await cluster.items(collection):
            path = f"{collection}/{item['metadata']['name']}"
            if item["metadata"].get("finalizers"):
                await cluster.patch(path, {"metadata": {"finalizers": None}})
            await cluster.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})


@in_virtual_time
async def test_sampled_mutated_bodies_are_harmless(cluster: Cluster) -> None:
    taken = await live(cluster, random.Random(14).sample(MUTATIONS, 400))
    assert 0 < taken < 400


@pytest.mark.soak
@pytest.mark.timeout(7200)
@in_virtual_time
async def test_all_mutated_bodies_are_harmless(cluster: Cluster) -> None:
    await live(cluster, MUTATIONS)
