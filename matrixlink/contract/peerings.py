"""What is asked and reported of peerings and security rules: which tenants' slices may reach one another."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import Field, field_validator

from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel, ResourceView

RULES_MAX = 64
Port = Annotated[int, Field(ge=1, le=65535)]


class PortRange(ApiModel):
    """Ports from `first` to `last`, both included."""

    first: Port
    last: Port


class SecurityRule(ApiModel):
    """Something that is allowed: what no rule allows is not. `remote` is a slice, a CIDR block or `*`; no ports are all
    of them."""

    direction: Literal["ingress", "egress"] = "ingress"
    protocol: Literal["tcp", "udp", "icmp", "any"] = "any"
    ports: list[PortRange] = Field(default_factory=list, max_length=32)
    remote: str = Field("*", min_length=1, max_length=253)

    @field_validator("remote")
    @classmethod
    def _sound(cls, remote: str) -> str:
        if "/" in remote:
            ipaddress.ip_network(remote, strict=False)
        return remote


SecurityRules = Annotated[list[SecurityRule], Field(max_length=RULES_MAX)]


class PeeringRequest(ApiModel):
    """Two slices of one plane that are to reach each other. `project` asks; where the other slice is another project's,
    that one has to accept. Rules are for the VPC plane."""

    project: str = Field("default", min_length=1, max_length=63)
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    slices: Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Field(min_length=2, max_length=2)]
    security_rules: SecurityRules = Field(default_factory=list)


class AcceptRequest(ApiModel):
    """Whose consent it is."""

    project: str = Field(min_length=1, max_length=63)


class PeeringView(ResourceView):
    """A peering: PendingAcceptance, Programming until every member's agent has acknowledged it, Active, Deleting."""

    slices: list[str]
    plane: Plane
    isolation: str
    isolation_key: int
    accepted_by: list[str]
    security_rules: list[SecurityRule] = Field(default_factory=list)
    message: str = ""


class ReachabilityView(ApiModel):
    """Whether something sent from one to the other arrives, and what says so."""

    source: str
    target: str
    plane: Plane
    protocol: str
    port: int | None = None
    allowed: bool
    reason: str
    by: str
    message: str
