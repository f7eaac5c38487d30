"""Peerings and security rules (which slices of which tenants may reach one another): requests and views."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import resolve
from matrixcommon.model.resource_model import ApiModel, ResourceView

RULES_MAX = 64
Port = Annotated[int, Field(ge=1, le=65535)]


class PortRange(ApiModel):
    """Ports from `first` to `last`, inclusive."""

    first: Port = Field(description="first port of the range")
    last: Port = Field(description="last port of the range, inclusive")


def is_address_block(text: str) -> bool:
    """Whether the text is an address or an address block, and not the name or key of a slice. Raises ValueError if it
    looks like an address but is not valid."""
    if "." not in text and ":" not in text:
        return False
    ipaddress.ip_network(text, strict=False)
    return True


class SecurityRule(ApiModel):
    """Traffic to allow; whatever no rule allows is denied. `remote` is a slice, a CIDR block or `*`; without `ports`
    the rule covers all of them."""

    direction: Literal["ingress", "egress"] = Field(
        "ingress", description="ingress: what members accept from the remote; egress: what they send to it"
    )
    protocol: Literal["tcp", "udp", "icmp", "any"] = Field("any", description="protocol to allow; any for all of them")
    ports: list[PortRange] = Field(
        default_factory=empty_list, max_length=32, description="destination ports to allow; empty for all"
    )
    remote: str = Field(
        "*",
        min_length=1,
        max_length=253,
        description="the other side: a slice, an address or block such as 10.0.0.0/8, or `*` for everybody",
    )

    @field_validator("remote")
    @classmethod
    def _validate_remote(cls, remote: str) -> str:
        if remote != "*" and not is_address_block(remote):
            validate_resource_name(remote, "securityRules.remote")
        return remote

    def in_project(self, project: str) -> Self:
        """A copy with the slice's key in place of its name."""
        if self.remote == "*" or is_address_block(self.remote):
            return self
        return self.model_copy(update={"remote": resolve(self.remote, project)})


SecurityRules = Annotated[list[SecurityRule], Field(max_length=RULES_MAX)]


class PeeringRequest(ApiModel):
    """Two slices of one plane that are to reach each other. `project` is the one that asks; a slice of another project
    needs that project's acceptance. Security rules are only for the VPC plane. A peering ends with either slice, also
    if its instance is suspended."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"slices": ["deepseek-r1-vpc", "qwen-vpc"]},)

    project: str = Field(
        "default",
        min_length=1,
        max_length=63,
        description="project that requests the peering; it owns at least one of the slices",
    )
    labels: dict[str, str] = Field(
        default_factory=empty_dict, max_length=64, description="labels by key, for selection in filters; at most 64"
    )
    slices: Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Field(min_length=2, max_length=2)] = (
        Field(description="the two slices, of one plane: a name within the project, or `project/name`")
    )
    security_rules: SecurityRules = Field(
        default_factory=empty_list,
        description="only for VPC: traffic between the two that is allowed in addition to the slices' own rules",
    )

    REFERENCES: ClassVar = ("slices", "security_rules")

    @property
    def references(self) -> list[str]:
        """None: either slice may belong to another project, whose consent is asked for."""
        return []


class AcceptRequest(ApiModel):
    """The project that consents."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"project": "research"},)

    project: str = Field(
        min_length=1, max_length=63, description="project that consents; it has to own one of the slices"
    )


class PeeringView(ResourceView):
    """A peering. States: PendingAcceptance; Programming until every member's agent has acknowledged it; Active;
    Deleting."""

    state: str = Field(
        "", description="PendingAcceptance, Programming until all members hold it, Active, or Deleting until none does"
    )
    slices: list[str] = Field(
        description="keys of the two slices: `project/name`, or the name alone in the project default"
    )
    projects: list[str] = Field(default_factory=empty_list, description="projects of both slices and of the requester")
    plane: Plane = Field(description="plane of both slices: ub, rdma or vpc")
    isolation: str = Field(description="partitionKey on UB and RDMA, vni on VPC")
    isolation_key: int = Field(description="the partition key or VNI itself, used only between the two slices")
    accepted_by: list[str] = Field(description="projects that have consented, first of all the one that requested it")
    security_rules: list[SecurityRule] = Field(
        default_factory=empty_list,
        description="on VPC: traffic between the two that is allowed in addition to the slices' own rules",
    )
    message: str = Field("", description="which project it waits for; else empty")


class ReachabilityView(ApiModel):
    """Whether traffic from `source` reaches `target`, and what decides that."""

    source: str = Field(description="key of the sending slice, or the address block outside of all slices")
    target: str = Field(description="key of the receiving slice")
    plane: Plane = Field(description="plane of the receiving slice: ub, rdma or vpc")
    protocol: str = Field(description="protocol that was asked about: tcp, udp, icmp or any")
    port: int | None = Field(None, description="destination port that was asked about; null if none was given")
    allowed: bool = Field(description="whether the traffic arrives")
    reason: str = Field(
        description="why: SameSlice, Peered, RuleAllows, NotPeered, PeeringNotActive, EgressDenied or IngressDenied"
    )
    by: str = Field(
        description="slice, peering or rule that decides, such as `slice/web-vpc/securityRules[0]`; empty if none is "
        "involved"
    )
    message: str = Field(description="why, as a sentence for people")
