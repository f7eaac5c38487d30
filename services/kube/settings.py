"""What can be set of the embedded Kubernetes API."""

from __future__ import annotations

from pydantic import Field

from services.chassis.settings import ServiceSettings


class KubeSettings(ServiceSettings):
    """The embedded Kubernetes API over TLS, with its kubeconfig in the state folder."""

    port: int = Field(8443, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    kube_admin_token: str = Field("", description="fixes the administrator's token; without it one is made and kept")
    kube_operator_token: str = Field("", description="the same for the operator, who may do what its roles say")
    kube_metrics_token: str = Field("", description="the same for a Prometheus, who may read /metrics and nothing else")
    advertise: str = Field("", description="host name or address in the kubeconfig and the certificate")
    certificate_names: str = Field(
        "kube", description="further names the certificate should carry, separated by commas: what containers call it"
    )
    workloads: bool = Field(
        True,
        description="act on Deployments, Jobs, autoscalers and pods; off where other controllers and kubelets do",
    )
    synchronous: str = Field(
        "FULL", pattern="^(NORMAL|FULL)$", description="SQLite: NORMAL outlives the process, FULL outlives power loss"
    )
