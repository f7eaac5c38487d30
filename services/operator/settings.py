"""What can be set of the operator."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from services.chassis.settings import Settings


class OperatorSettings(Settings):
    """The operator: CloudMatrixInstance and related kinds, on any Kubernetes API. Its time is the wall's."""

    kubeconfig: Path | None = Field(None, description="kubeconfig of the Kubernetes API; none means: inside a pod")
    kube_url: str = Field("", description="where that API listens, if known: an older kubeconfig is waited for anew")
    identity: str = Field("", description="who we are among several operators; the host and state folder by default")
    lease_namespace: str = Field(
        "kube-system", min_length=1, description="namespace of the Lease that says which of several operators works"
    )
    shared_cluster: bool = Field(
        True,
        description="the API is of a cluster with machines and kubelets of its own: emulated nodes bear a taint that "
        "keeps its pods off them, and their kubelets, with a Lease for each, are played here; off where the embedded "
        "API plays them",
    )
    install_crds: bool = Field(True, description="apply the CRDs at start")
    resource_url: str = Field("http://127.0.0.1:8401", description="where MatrixResource is")
    link_url: str = Field("http://127.0.0.1:8402", description="where MatrixLink is")
    compute_url: str = Field("http://127.0.0.1:8403", description="where MatrixCompute is")
    infer_url: str = Field("http://127.0.0.1:8404", description="where CloudMatrix-Infer is")
    infer_public_url: str = Field("", description="where users find CloudMatrix-Infer; the same by default")
    agents_url: str = Field("http://127.0.0.1:8405", description="where the emulated hardware takes faults")
