"""Scratch volumes: the operator of Kopf's tutorial, as an example of how to test an operator.

A ScratchVolume asks for a PersistentVolumeClaim of some size. The operator creates it, grows it with the ScratchVolume,
refuses to shrink it, and shows the result in the status. The ScratchVolume owns the claim, which is deleted with it.
Run the operator with `kopf run scratch_volumes.py`; docs/how-to/test-your-operator.md shows how to test it.
"""

from __future__ import annotations

import os
from typing import Any

import kopf
import kubernetes

GROUP, VERSION, PLURAL = "example.com", "v1", "scratchvolumes"

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "ScratchVolume", "plural": PLURAL, "singular": "scratchvolume", "shortNames": ["sv"]},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["gibibytes"],
                                "properties": {"gibibytes": {"type": "integer", "minimum": 1}},
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


@kopf.on.login()  # type: ignore[arg-type]
def log_in(**given: Any) -> kopf.ConnectionInfo | None:
    """Log in by KUBECONFIG as it is now; it may have changed since this file was imported."""
    return kopf.login_with_kubeconfig(**given)


@kopf.on.startup()  # type: ignore[arg-type]
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Make the client for claims use the same cluster as Kopf."""
    kubernetes.config.load_kube_config(os.environ.get("KUBECONFIG"))
    settings.posting.enabled = False


@kopf.on.create(GROUP, VERSION, PLURAL)  # type: ignore[arg-type]
def make_claim(spec: kopf.Spec, name: str | None, namespace: str | None, **_: Any) -> dict[str, Any]:
    """Kopf writes the returned value into the status, under the name of this function."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": _size(spec["gibibytes"])}},
    }
    kopf.adopt(claim)
    kubernetes.client.CoreV1Api().create_namespaced_persistent_volume_claim(namespace, claim)
    return {"claim": name, "gibibytes": spec["gibibytes"]}


@kopf.on.update(GROUP, VERSION, PLURAL, field="spec.gibibytes")  # type: ignore[arg-type]
def grow_claim(
    old: int, new: int, name: str | None, namespace: str | None, patch: kopf.Patch, **_: Any
) -> dict[str, Any]:
    """A claim cannot shrink: the status says so, and the change is not retried."""
    if new < old:
        patch.status["refused"] = f"cannot shrink from {old} to {new} GiB"
        raise kopf.PermanentError(f"cannot shrink from {old} to {new} GiB")
    body = {"spec": {"resources": {"requests": _size(new)}}}
    kubernetes.client.CoreV1Api().patch_namespaced_persistent_volume_claim(name, namespace, body)
    return {"gibibytes": new}


def _size(gibibytes: int) -> dict[str, str]:
    return {"storage": f"{gibibytes}Gi"}
