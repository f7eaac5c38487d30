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

    labels: dict[str, str] = Field(
        default_factory=empty_dict, max_length=64, description="its labels; left out, they stay as they are"
    )
    spec: dict[str, Any] | None = Field(
        None,
        description="its numbers, in the form of cloudmatrix384.yaml; by default the service's own; it cannot change",
    )
    graph: dict[str, Any] | str | None = Field(
        None,
        description="its wiring: node-link JSON, GraphML, or either as base64 of gzip; by default as the spec says, or "
        "as it is",
    )


class SupernodeWiring(ApiModel):
    """Everything needed to draw a supernode's graph: the numbers of its spec, where the wiring was `drawn` differently,
    and where agents `found` it different from the drawing. Parts are named without the supernode."""

    supernode: str = Field(description="name of the supernode")
    topology_version: str = Field(description="topology version this describes")
    spec: dict[str, Any] = Field(description="numbers of its spec, by section")
    drawn: list[dict[str, str]] = Field(
        default_factory=empty_list,
        description="where its drawing differs from the regular wiring of its spec: kind, part, and peer of a moved "
        "cable",
    )
    found: list[dict[str, str]] = Field(
        default_factory=empty_list,
        description="where agents found it to differ from the drawing: kind, part, and peer of a moved cable",
    )


class DomainRequest(ApiModel):
    """Why the domain is being closed or opened."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"reason": "new power supplies"},)

    reason: str = Field("", max_length=200, description="why, shown on the domain")


class DomainView(ResourceView):
    """A cabinet or a supernode as a maintenance domain. A closed one accepts nothing new and keeps what it has.

    `state` is Open, Closed, Draining (closed, and its allocations are to leave) or Drained (they have left);
    `allocations` are those still there.
    """

    level: Literal["cabinet", "supernode"] = Field(description="kind of domain")
    supernode: str = Field(description="the supernode it is in, or is")
    reason: str = Field("", description="why it was last closed or opened; empty: no reason given")
    by: str = Field("", description="name of the token that last closed or opened it; empty: none")
    allocations: list[str] = Field(default_factory=empty_list, description="allocations that hold anything in it")


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
    ] = Field(description="what changed")
    part: str = Field(description="the domain, link or switch")
    peer: str | None = Field(None, description="with CableMoved: the new neighbour")


class TopologyVersionView(ResourceView):
    """The machine from `createdAt` until the next version. `state` is Current or Superseded; `summary` describes the
    change in a line.

    `topology` has the supernodes with fingerprints of their specs, the closed domains, and the deviations from the
    spec's wiring.
    """

    number: int = Field(description="number of the version, counted from 1")
    by: str = Field(description="who made the change: name of the token, or what found it")
    summary: str = Field(description="the changes in one line")
    changes: list[TopologyChange] = Field(description="the changes since the version before")
    topology: dict[str, Any] = Field(
        default_factory=empty_dict,
        description="supernodes with fingerprints of their graphs, closed domains, and deviations that agents found",
    )
