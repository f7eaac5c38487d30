"""The operator's settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from services.chassis.settings import Settings


class OperatorSettings(Settings):
    """The operator: CloudMatrixInstance and related kinds, on any Kubernetes API. It runs in wall time."""

    kubeconfig: Path | None = Field(
        None, description="kubeconfig of the Kubernetes API; by default the in-cluster configuration of a pod"
    )
    kube_url: str = Field(
        "", description="URL of that API, if known; the operator waits until the kubeconfig points to it"
    )
    identity: str = Field(
        "", description="identity of this operator among several; by default from the host and state folder"
    )
    lease_namespace: str = Field(
        "kube-system", min_length=1, description="namespace of the Lease that elects one of several operators"
    )
    shared_cluster: bool = Field(
        True,
        description="whether the cluster has real machines and kubelets: emulated nodes then get a taint that keeps "
        "its pods off them, and their kubelets, each with a Lease, are emulated here; off for the embedded API, which "
        "emulates them itself",
    )
    install_crds: bool = Field(True, description="apply the CRDs at start, and again when one is deleted")
    resource_url: str = Field("http://127.0.0.1:8401", description="URL of MatrixResource")
    link_url: str = Field("http://127.0.0.1:8402", description="URL of MatrixLink")
    compute_url: str = Field("http://127.0.0.1:8403", description="URL of MatrixCompute")
    infer_url: str = Field("http://127.0.0.1:8404", description="URL of CloudMatrix-Infer")
    infer_public_url: str = Field("", description="URL of CloudMatrix-Infer for users; by default the same")
    agents_url: str = Field("http://127.0.0.1:8405", description="URL of the emulated hardware, for faults")
