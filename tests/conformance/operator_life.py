"""One life of everything the operator speaks for, lived through a Kubernetes API, and what its user saw of it.

The life is the same on every API: an instance with a spare, a workload on it, a pod of our scheduler, a node lost and
repaired, the instance scaled, everything deleted. What is kept is what a user reads: the states of each resource in the
order they came, its conditions at each rest, the events in their order, what lies on the nodes. Times, names of machines
(the emulated hardware's own choice, but the same for the same seed) and uids are left out.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from itertools import dropwhile
from typing import Any

import httpx

GROUP = "/apis/cloudmatrix.io/v1alpha1"
OURS = f"{GROUP}/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
NODES = "/api/v1/nodes"
PATIENCE_WALL_S = 90.0
MERGE = {"content-type": "application/merge-patch+json"}


class Watched:
    """The states of one resource, each as often as it changed, read from a watch."""

    def __init__(self, client: httpx.Client, plural: str, name: str) -> None:
        self._client, self._plural, self._name = client, plural, name
        self.states: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        since = ""
        while not self._ended.is_set():
            params = {"watch": "1", "fieldSelector": f"metadata.name={self._name}", "timeoutSeconds": "30"}
            if since:
                params["resourceVersion"] = since
            try:
                with self._client.stream("GET", f"{OURS}/{self._plural}", params=params, timeout=40) as answer:
                    for line in answer.iter_lines():
                        since = self._take(json.loads(line))
            except httpx.HTTPError:
                continue

    def _take(self, event: dict[str, Any]) -> str:
        body = event["object"]
        state = "gone" if event["type"] == "DELETED" else (body.get("status") or {}).get("state", "")
        if state and self.states[-1:] != [state]:
            self.states.append(state)
        if event["type"] == "DELETED":
            self._ended.set()
        return str(body["metadata"]["resourceVersion"])

    def until_gone(self) -> list[str]:
        """All states but the first passing ones, which may be over before anybody looks."""
        assert self._ended.wait(PATIENCE_WALL_S), self.states
        return list(dropwhile(lambda state: state in ("Pending", "Loading"), self.states))


PASSING = ("Pending", "Loading", "Degraded")
"""States of a workload that may be over before the operator looks."""

HASTY = ("TaintManagerEviction",)  # told only where a controller is quicker than the operator, on either server


class Life:
    """`live()` does it all and returns what was seen; `told` says what the operator's log holds, for a failure."""

    def __init__(self, client: httpx.Client, reported: Callable[[], str]) -> None:
        self.client = client
        self.told = reported
        self.seen: dict[str, Any] = {}

    def live(self) -> dict[str, Any]:
        self.until(lambda: len(self.items(NODES)) == 48 and self.get(f"{GROUP}/supernodes/sn0"), "all is mirrored")
        self.note("node", _node(self.get(f"{NODES}/sn0-c00-n0")))
        instance = Watched(self.client, "cloudmatrixinstances", "one")
        infer = Watched(self.client, "cloudmatrixinfers", "one")

        self.create("cloudmatrixinfers", "one", {"instance": "one"})
        self.create("cloudmatrixinstances", "one", {"nodes": 18, "spares": 1})
        self.rest("active", 18)
        self.until(lambda: self.state("cloudmatrixinfers", "one") == "Serving", "the workload serves")
        self.until(lambda: self.running("cloudmatrix.io/deployment=one") == 18, "its pods run")
        self.note("pods", sorted(_role(pod) for pod in self.items(PODS)))

        self.post(PODS, A_POD)
        self.until(lambda: self.running("app=asks") == 1, "the pod that asks for a node runs")
        self.live_with_a_pod_group()
        self.post(PODS, A_PART)
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        self.until(lambda: _condition(self.get(f"{PODS}/part"), **refused), "the pod that cannot be placed is told why")
        self.note("part of a node", _condition(self.get(f"{PODS}/part"), **refused)["message"])

        members = self.get(f"{OURS}/cloudmatrixinstances/one")["status"]["members"]
        lost = next(each["node"] for each in members if each["rank"] == 1)
        self.create("matrixfaults", "dark", {"kind": "node-down", "target": lost}, namespaced=False)
        repairs = lambda: self.get(f"{OURS}/cloudmatrixinstances/one")["status"]["repairs"] == 1  # noqa: E731
        self.until(repairs, "the lost node is being replaced")
        self.rest("repaired", 18)
        self.note("lost node", _node(self.get(f"{NODES}/{lost}")))
        self.delete(f"{GROUP}/matrixfaults/dark")
        self.gone(f"{GROUP}/matrixfaults/dark")

        self.until(lambda: _condition(self.get(f"{NODES}/{lost}"), type="Ready", status="True"), "the node is back")
        self.patch(f"{OURS}/cloudmatrixinstances/one/scale", {"spec": {"replicas": 20}})
        self.rest("scaled", 20)
        self.patch(f"{OURS}/cloudmatrixinstances/one", {"spec": {"placement": {"policy": "spread"}}})
        self.rest("moved", 20)
        places = {each["cabinet"] for each in self.get(f"{OURS}/cloudmatrixinstances/one")["status"]["members"]}
        self.note("cabinets after the move", sorted(places))
        self.note("refusals", [self.refusal(patch) for patch in REFUSED])

        for path in (f"{PODS}/asks", f"{PODS}/part", f"{OURS}/cloudmatrixinfers/one"):
            self.delete(path)
            self.gone(path)
        self.delete(f"{OURS}/cloudmatrixinstances/one")
        self.note("states of the workload", sorted(set(infer.until_gone()) - set(PASSING)))
        self.note("states of the instance", instance.until_gone())
        self.until(lambda: not self.items(f"{GROUP}/networkslices") and not self.items(PODS), "nothing is left")
        labelled = lambda: [n for n in self.items(NODES) if "cloudmatrix.io/instance" in n["metadata"]["labels"]]  # noqa: E731
        self.until(lambda: not labelled(), "every node is free again")
        self.note("nodes", sorted({json.dumps(_node(node)) for node in self.items(NODES)}))
        self.note("events", self.events("CloudMatrixInstance"))
        self.note("events of pods", sorted(set(self.events("Pod"))))
        return self.seen

    def live_with_a_pod_group(self) -> None:
        """Three pods of a PodGroup of Volcano's kind: nobody goes before all are there, then all do, and leave."""
        crd = self.client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=POD_GROUPS)
        assert crd.status_code == 201, crd.text
        groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
        self.until(lambda: self.client.get(groups).status_code == 200, "PodGroups are served")
        spec = {"minMember": 3, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
        head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        self.post(groups, head | {"metadata": {"name": "job"}, "spec": spec})
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        for at in range(3):
            pod = _pod(f"job-{at}", "8")
            pod["metadata"] |= {"labels": {"app": "job"}, "annotations": {"scheduling.k8s.io/group-name": "job"}}
            self.post(PODS, pod)
            if at == 1:
                self.until(
                    lambda: "2 of the gang's 3" in _condition(self.get(f"{PODS}/job-1"), **waits).get("message", ""),
                    "two of three wait",
                )
        self.until(lambda: self.running("app=job") == 3, "the gang runs")
        self.note("nodes of the gang", len({pod["spec"]["nodeName"] for pod in self.items(PODS, "app=job")}))
        for at in range(3):
            self.delete(f"{PODS}/job-{at}")
            self.gone(f"{PODS}/job-{at}")

    # -- what it is made of ---------------------------------------------------------------------------------------

    def note(self, what: str, value: Any) -> None:
        self.seen[what] = value

    def rest(self, what: str, nodes: int) -> None:
        """Wait until the instance is at rest with that many nodes; keep its conditions."""

        def settled() -> bool:
            body = self.get(f"{OURS}/cloudmatrixinstances/one")
            status = body.get("status") or {}
            return bool(
                status.get("state") == "Active"
                and status.get("observedGeneration") == body["metadata"]["generation"]
                and status.get("readyNodes") == nodes
                and _condition(body, type="Ready", status="True")
                and _condition(body, type="Progressing", status="False")
                and _condition(body, type="SparesAvailable", status="True")
                and len(status["members"]) == nodes + 1
            )

        self.until(settled, f"the instance is {what}")
        status = self.get(f"{OURS}/cloudmatrixinstances/one")["status"]
        self.note(f"conditions when {what}", {c["type"]: [c["status"], c["reason"]] for c in status["conditions"]})
        self.note(f"planes when {what}", sorted(f"{each['plane']} {each['state']}" for each in status["slices"]))

    def events(self, kind: str) -> list[str]:
        """Reason and type of the events of one kind of resource, in the order they happened."""
        found = [e for e in self.items(EVENTS) if e["involvedObject"]["kind"] == kind]
        found = [e for e in found if e["reason"] not in HASTY]
        found.sort(key=lambda event: event["metadata"]["name"] if kind != "Pod" else event["reason"])
        return [f"{event['type']} {event['reason']}" for event in found]

    def refusal(self, spec: dict[str, Any]) -> str:
        answer = self.client.patch(f"{OURS}/cloudmatrixinstances/one", json={"spec": spec}, headers=MERGE)
        return f"{answer.status_code} {answer.json().get('message')}"

    def until(self, holds: Callable[[], Any], sentence: str) -> None:
        ends = time.monotonic() + PATIENCE_WALL_S
        while not holds():
            assert time.monotonic() < ends, f"{sentence}: not within {PATIENCE_WALL_S:g} s\n{self.told()[-3000:]}"
            time.sleep(0.1)

    def get(self, path: str) -> dict[str, Any]:
        """The object; {} where there is none."""
        answer = self.client.get(path)
        return dict(answer.json()) if answer.status_code != 404 else {}

    def items(self, path: str, labels: str = "") -> list[dict[str, Any]]:
        return list(self.client.get(path, params={"labelSelector": labels}).raise_for_status().json()["items"])

    def state(self, plural: str, name: str) -> str:
        return str((self.get(f"{OURS}/{plural}/{name}").get("status") or {}).get("state", ""))

    def running(self, labels: str) -> int:
        return sum(bool(_condition(pod, type="Ready", status="True")) for pod in self.items(PODS, labels))

    def create(self, plural: str, name: str, spec: dict[str, Any], namespaced: bool = True) -> None:
        kind = {"cloudmatrixinstances": "CloudMatrixInstance", "cloudmatrixinfers": "CloudMatrixInfer"}
        body = {"apiVersion": "cloudmatrix.io/v1alpha1", "kind": kind.get(plural, "MatrixFault")}
        self.post(f"{OURS if namespaced else GROUP}/{plural}", body | {"metadata": {"name": name}, "spec": spec})

    def post(self, path: str, body: dict[str, Any]) -> None:
        answer = self.client.post(path, json=body)
        assert answer.status_code == 201, answer.text

    def patch(self, path: str, body: dict[str, Any]) -> None:
        answer = self.client.patch(path, json=body, headers=MERGE)
        assert answer.status_code == 200, answer.text

    def delete(self, path: str) -> None:
        assert self.client.delete(path).status_code in (200, 202)

    def gone(self, path: str) -> None:
        self.until(lambda: not self.get(path), f"{path} is gone")


def _condition(body: dict[str, Any], **wanted: str) -> dict[str, Any]:
    conditions = (body.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if all(c.get(k) == v for k, v in wanted.items())), {})


def _role(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["cloudmatrix.io/role"])


def _node(body: dict[str, Any]) -> dict[str, Any]:
    """What a user reads off a Node: labels, taints, NPUs, conditions, whatever else the API's controllers add."""
    taints = sorted(f"{taint['key']}:{taint['effect']}" for taint in body["spec"].get("taints") or [])
    return {
        "labels": sorted(body["metadata"]["labels"]),
        "taints": taints,
        "npus": body["status"]["allocatable"]["huawei.com/Ascend910"],
        "conditions": {c["type"]: c["status"] for c in body["status"]["conditions"]},
    }


def _pod(name: str, npus: str) -> dict[str, Any]:
    wanted = {"limits": {"huawei.com/Ascend910": npus}}
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "schedulerName": "matrix-scheduler",
            "containers": [{"name": "c", "image": "i", "resources": wanted}],
        },
    }


A_POD, A_PART = _pod("asks", "8"), _pod("part", "3")

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
POD_GROUPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "shortNames": ["pg"]},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _ANYTHING}}],
    },
}

REFUSED: list[dict[str, Any]] = [{"nodes": 0}, {"placement": {"policy": "anyhow"}}]
