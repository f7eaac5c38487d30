"""What MatrixResource is asked about its machine and what it shows: supernodes, domains, topology versions."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_model import ApiModel, ResourceView


class SupernodeRequest(ApiModel):
    """A supernode that exists. `spec` is a document in the form of `cloudmatrix384.yaml`; without it, the service's.

    `graph` is how it is wired: node-link JSON, GraphML text, or either as base64 of gzip, for a whole supernode is
    larger than a body may be. Without it, as the spec says, or as it is wired already. Without labels it
    keeps those it has.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"labels": {"hall": "3"}},)

    labels: dict[str, str] = Field(default_factory=empty_dict, max_length=64)
    spec: dict[str, Any] | None = None
    graph: dict[str, Any] | str | None = None


class SupernodeWiring(ApiModel):
    """All that it takes to draw a supernode's graph: the numbers of its spec, where it is `drawn` otherwise than they
    say, and where agents `found` it otherwise than drawn. Parts are named without the supernode."""

    supernode: str
    topology_version: str
    spec: dict[str, Any]
    drawn: list[dict[str, str]] = Field(default_factory=empty_list)
    found: list[dict[str, str]] = Field(default_factory=empty_list)


class DomainRequest(ApiModel):
    """Why a domain is closed or opened."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"reason": "new power supplies"},)

    reason: str = Field("", max_length=200)


class DomainView(ResourceView):
    """A cabinet or a supernode as a domain of maintenance. Closed, it takes nothing new and keeps what it has.

    `state` is Open, Closed, Draining (closed, and whoever lies there is to leave) or Drained (they have left);
    `allocations` still lie there.
    """

    level: Literal["cabinet", "supernode"]
    supernode: str
    reason: str = ""
    by: str = ""
    allocations: list[str] = Field(default_factory=empty_list)


class TopologyChange(ApiModel):
    """What one version changed. `part` is a domain, a link or a switch; `peer` who answers where a cable was moved."""

    kind: Literal[
        "SupernodeAdded",
        "SupernodeRemoved",
        "SupernodeRedrawn",
        "DomainClosed",
        "DomainOpened",
        "CableDark",
        "CableMoved",
        "CableRepaired",
        "SwitchFailed",
        "SwitchRepaired",
    ]
    part: str
    peer: str | None = None


class TopologyVersionView(ResourceView):
    """The machine as it was from `createdAt` until the next version. `state` is Current or Superseded; `summary` says
    in a line what it changed.

    `topology` has the supernodes with the fingerprints of their specs, the closed domains and the deviations from the
    layout.
    """

    number: int
    by: str
    summary: str
    changes: list[TopologyChange]
    topology: dict[str, Any] = Field(default_factory=empty_dict)
