"""What is asked and reported of peerings and security rules: which tenants' slices may reach one another."""

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
    """Ports from `first` to `last`, both included."""

    first: Port
    last: Port


def is_block(text: str) -> bool:
    """Whether it is an address block, or an address, and no name or key of a slice. Raises ValueError for what is
    neither."""
    if "." not in text and ":" not in text:
        return False
    ipaddress.ip_network(text, strict=False)
    return True


class SecurityRule(ApiModel):
    """Something that is allowed: what no rule allows is not. `remote` is a slice, a CIDR block or `*`; no ports are all
    of them."""

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
        """With a key in place of a slice's name."""
        if self.remote == "*" or is_block(self.remote):
            return self
        return self.model_copy(update={"remote": resolve(self.remote, project)})


SecurityRules = Annotated[list[SecurityRule], Field(max_length=RULES_MAX)]


class PeeringRequest(ApiModel):
    """Two slices of one plane that are to reach each other. `project` asks; where the other slice is another project's,
    that one has to accept. Rules are for the VPC plane."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"slices": ["deepseek-r1-vpc", "qwen-vpc"]},)

    project: str = Field("default", min_length=1, max_length=63)
    labels: dict[str, str] = Field(default_factory=empty_dict, max_length=64)
    slices: Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Field(min_length=2, max_length=2)]
    security_rules: SecurityRules = Field(default_factory=empty_list)

    REFERENCES: ClassVar = ("slices", "security_rules")

    @property
    def references(self) -> list[str]:
        """Either slice may be another project's, whose consent it takes."""
        return []


class AcceptRequest(ApiModel):
    """Whose consent it is."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"project": "research"},)

    project: str = Field(min_length=1, max_length=63)


class PeeringView(ResourceView):
    """A peering: PendingAcceptance, Programming until every member's agent has acknowledged it, Active, Deleting."""

    slices: list[str]
    projects: list[str] = Field(default_factory=empty_list, description="whose it is: of both slices, and who asked")
    plane: Plane
    isolation: str
    isolation_key: int
    accepted_by: list[str]
    security_rules: list[SecurityRule] = Field(default_factory=empty_list)
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
