"""Supernodes, maintenance domains and topology versions: requests and views."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_model import ApiModel, ResourceView


class SupernodeRequest(ApiModel):
    """A supernode to add or to update. `spec` is a document in the form of `cloudmatrix384.yaml`; by default the
    service's own.

    `graph` is its wiring: node-link JSON, GraphML text, or either as base64 of gzip, since a whole supernode exceeds
    the size limit of a body. By default it is wired as the spec says, or stays as it is wired already. Labels that are
    left out are kept.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"labels": {"hall": "3"}},)

    labels: dict[str, str] = Field(default_factory=empty_dict, max_length=64)
    spec: dict[str, Any] | None = None
    graph: dict[str, Any] | str | None = None


class SupernodeWiring(ApiModel):
    """Everything needed to draw a supernode's graph: the numbers of its spec, where the wiring was `drawn` differently,
    and where agents `found` it different from the drawing. Parts are named without the supernode."""

    supernode: str
    topology_version: str
    spec: dict[str, Any]
    drawn: list[dict[str, str]] = Field(default_factory=empty_list)
    found: list[dict[str, str]] = Field(default_factory=empty_list)


class DomainRequest(ApiModel):
    """Why the domain is being closed or opened."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"reason": "new power supplies"},)

    reason: str = Field("", max_length=200)


class DomainView(ResourceView):
    """A cabinet or a supernode as a maintenance domain. A closed one accepts nothing new and keeps what it has.

    `state` is Open, Closed, Draining (closed, and its allocations are to leave) or Drained (they have left);
    `allocations` are those still there.
    """

    level: Literal["cabinet", "supernode"]
    supernode: str
    reason: str = ""
    by: str = ""
    allocations: list[str] = Field(default_factory=empty_list)


class TopologyChange(ApiModel):
    """One change made by a topology version. `part` is a domain, a link or a switch; for a moved cable `peer` is the
    new neighbour."""

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
    """The machine from `createdAt` until the next version. `state` is Current or Superseded; `summary` describes the
    change in a line.

    `topology` has the supernodes with fingerprints of their specs, the closed domains, and the deviations from the
    spec's wiring.
    """

    number: int
    by: str
    summary: str
    changes: list[TopologyChange]
    topology: dict[str, Any] = Field(default_factory=empty_dict)
