"""Settings of the embedded Kubernetes API."""

from __future__ import annotations

from pydantic import Field

from services.chassis.settings import ServiceSettings


class KubeSettings(ServiceSettings):
    """The embedded Kubernetes API over TLS, with its kubeconfig in the state folder."""

    port: int = Field(8443, ge=0, le=65535, description="port to listen on; 0 for a free one")
    kube_admin_token: str = Field("", description="token of the administrator; by default one is generated and kept")
    kube_operator_token: str = Field("", description="the same for the operator, whose rights are its roles")
    kube_metrics_token: str = Field("", description="the same for Prometheus, which may only read /metrics")
    advertise: str = Field("", description="host name or address in the kubeconfig and the certificate")
    certificate_names: str = Field(
        "kube", description="additional names in the certificate, comma-separated, such as those used in containers"
    )
    workloads: bool = Field(
        True,
        description="run the controllers of Deployments, Jobs, autoscalers and pods; off if other controllers and "
        "kubelets do",
    )
    synchronous: str = Field(
        "FULL",
        pattern="^(NORMAL|FULL)$",
        description="SQLite durability: NORMAL survives a crash of the process, FULL also power loss",
    )
