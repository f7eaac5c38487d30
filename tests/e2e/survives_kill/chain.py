"""kill -9 of each process in turn, while the chain is at work: everything converges, nothing is doubled or left behind.

Written against what users have: the Kubernetes API, REST, the OpenAI-compatible endpoint. Which process is killed and
when is the only thing the test knows of the inside.
"""

from __future__ import annotations

from pathlib import Path

import httpx

from services.catalogue import PROCESSES
from tests.e2e.conftest import RealStack, eventually

ASKERS = ("compute", "operator")
"""Who asks others for changes: what it asked for and heard nothing of may be carried out later, and whoever deletes it
waits a minute for that. They have a file of their own, so that the others are killed meanwhile."""

MANIFEST = """\
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {{name: {name}}}
spec: {{nodes: 8, spares: 1}}
---
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInfer
metadata: {{name: {name}}}
spec: {{instance: {name}}}
"""


def survives(victim: str, real_stack: RealStack, tmp_path: Path) -> None:
    """The chain goes its way though `victim` is killed in each part of it."""
    name = f"kill-{victim}"
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST.format(name=name))
    eventually(real_stack.all_ready, "the stack is ready")
    nodes_lost_before = {
        node["name"] for node in real_stack.client.list("resource", "/v1/nodes") if node["agent"] == "Lost"
    }
    assert not nodes_lost_before, nodes_lost_before

    # while it is being provisioned
    eventually(lambda: real_stack.cluster.apply(manifest), "applied")
    eventually(lambda: real_stack.state(name) in ("Provisioning", "Active"), "taken up")
    real_stack.kill(victim)
    eventually(lambda: real_stack.active(name), "Active after a kill while provisioning")
    converged(real_stack)

    # while it serves
    eventually(lambda: says_something(real_stack, name), "serving")
    real_stack.kill(victim)
    eventually(lambda: says_something(real_stack, name), "serving after a kill")
    converged(real_stack)

    # while it is repaired
    members = real_stack.members(name)
    lost = members[[process.name for process in PROCESSES].index(victim) % len(members)]  # one too often is flapping
    fault = f"/v1/faults/{name}"
    body = {"kind": "node-down", "target": lost, "parameters": {}}
    eventually(lambda: real_stack.client.call("agents", "PUT", fault, body=body), "fault injected")
    eventually(lambda: real_stack.state(name) == "Repairing" or lost not in real_stack.members(name), "repair begins")
    real_stack.kill(victim)
    eventually(lambda: real_stack.active(name) and lost not in real_stack.members(name), "Active without the lost node")
    eventually(lambda: says_something(real_stack, name), "serving after the repair")
    converged(real_stack)

    # while it is deleted
    eventually(lambda: real_stack.client.call("agents", "DELETE", fault) == {}, "fault cleared")
    eventually(lambda: real_stack.cluster.delete(manifest), "deletion asked")
    real_stack.kill(victim)
    eventually(lambda: not real_stack.instance(name) and not real_stack.cluster.serving(name), "deleted")
    eventually(lambda: not real_stack.client.list("resource", "/v1/allocations"), "no allocation left")
    eventually(lambda: not real_stack.client.list("link", "/v1/slices"), "no slice left")
    eventually(lambda: not real_stack.cluster.items("/api/v1/namespaces/default/pods"), "no pod left")
    eventually(
        lambda: all(node["state"] == "Available" for node in real_stack.client.list("resource", "/v1/nodes")),
        "every node is free again",
    )
    converged(real_stack)


def converged(stack: RealStack) -> None:
    """All processes ready, and no promise broken (a thing in the middle of a change is given time to settle)."""
    eventually(stack.all_ready, "every process is ready again")
    wrong: list[str] = []

    def nothing_is_wrong() -> bool:
        wrong[:] = stack.violated_invariants()
        return not wrong

    try:
        eventually(nothing_is_wrong, "nothing is held twice or by nobody", 30.0)
    except AssertionError as late:
        raise AssertionError("; ".join(wrong[:5]) or str(late)) from None


def says_something(stack: RealStack, model: str) -> bool:
    """One completion through the endpoint."""
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    try:
        answer = httpx.post(
            stack.client.url("infer") + "/v1/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {stack.folder.admin_token()}"},
            timeout=30.0,
            trust_env=False,
        )
    except httpx.HTTPError:
        return False
    return answer.status_code == 200 and bool(answer.json()["choices"][0]["message"]["content"])
