"""Peerings and security rules (which slices of which tenants may reach one another): requests and views."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import checked_resource_name
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import resolve
from matrixcommon.model.resource_model import ApiModel, ResourceView

RULES_MAX = 64
Port = Annotated[int, Field(ge=1, le=65535)]


class PortRange(ApiModel):
    """Ports from `first` to `last`, inclusive."""

    first: Port
    last: Port


def is_block(text: str) -> bool:
    """Whether the text is an address or an address block, and not the name or key of a slice. Raises ValueError if it
    looks like an address but is not valid."""
    if "." not in text and ":" not in text:
        return False
    ipaddress.ip_network(text, strict=False)
    return True


class SecurityRule(ApiModel):
    """Traffic to allow; whatever no rule allows is denied. `remote` is a slice, a CIDR block or `*`; without `ports`
    the rule covers all of them."""

    direction: Literal["ingress", "egress"] = "ingress"
    protocol: Literal["tcp", "udp", "icmp", "any"] = "any"
    ports: list[PortRange] = Field(default_factory=empty_list, max_length=32)
    remote: str = Field("*", min_length=1, max_length=253)

    @field_validator("remote")
    @classmethod
    def _sound(cls, remote: str) -> str:
        if remote != "*" and not is_block(remote):
            checked_resource_name(remote, "securityRules.remote")
        return remote

    def in_project(self, project: str) -> Self:
        """A copy with the slice's key in place of its name."""
        if self.remote == "*" or is_block(self.remote):
            return self
        return self.model_copy(update={"remote": resolve(self.remote, project)})


SecurityRules = Annotated[list[SecurityRule], Field(max_length=RULES_MAX)]


class PeeringRequest(ApiModel):
    """Two slices of one plane that are to reach each other. `project` is the one that asks; a slice of another project
    needs that project's acceptance. Security rules are only for the VPC plane."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"slices": ["deepseek-r1-vpc", "qwen-vpc"]},)

    project: str = Field("default", min_length=1, max_length=63)
    labels: dict[str, str] = Field(default_factory=empty_dict, max_length=64)
    slices: Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Field(min_length=2, max_length=2)]
    security_rules: SecurityRules = Field(default_factory=empty_list)

    REFERENCES: ClassVar = ("slices", "security_rules")

    @property
    def references(self) -> list[str]:
        """None: either slice may belong to another project, whose consent is asked for."""
        return []


class AcceptRequest(ApiModel):
    """The project that consents."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"project": "research"},)

    project: str = Field(min_length=1, max_length=63)


class PeeringView(ResourceView):
    """A peering. States: PendingAcceptance; Programming until every member's agent has acknowledged it; Active;
    Deleting."""

    slices: list[str]
    projects: list[str] = Field(default_factory=empty_list, description="projects of both slices and of the requester")
    plane: Plane
    isolation: str
    isolation_key: int
    accepted_by: list[str]
    security_rules: list[SecurityRule] = Field(default_factory=empty_list)
    message: str = ""


class ReachabilityView(ApiModel):
    """Whether traffic from `source` reaches `target`, and what decides that."""

    source: str
    target: str
    plane: Plane
    protocol: str
    port: int | None = None
    allowed: bool
    reason: str
    by: str
    message: str
