"""Drains (parts of the fabric taken out of use for maintenance): requests and views."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixlink.contract.what_if import ELEMENTS_MAX, Element, WhatIfView


class DrainRequest(ApiModel):
    """Elements to take out of use: links, switches, a node's uplinks in a sub-plane, and whatever else a what-if
    accepts. Refused if it would break a floor or cut members off, unless `even_if_floors_break` is set."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"elements": ["sn0-l2p1-k01"], "reason": "new optics", "evenIfFloorsBreak": True},
    )

    project: str = Field("default", min_length=1, max_length=63, description="project that the drain is to belong to")
    labels: dict[str, str] = Field(
        default_factory=empty_dict, max_length=64, description="labels by key, for selection in filters; at most 64"
    )
    elements: Annotated[list[Element], Field(min_length=1, max_length=ELEMENTS_MAX)] = Field(
        description="links, switches, nodes, NPUs, cabinets, bus devices, sub-planes or planes to take out of use"
    )
    reason: str = Field("", max_length=300, description="why, for people who see the drain; empty if not given")
    even_if_floors_break: bool = Field(
        False, description="whether to drain although floors would break or members would be cut off from each other"
    )


class DrainView(ResourceView):
    """A drain: the number of ports out of use, and of programs that may still send over them. `what_if` is only set
    with validateOnly."""

    state: str = Field(
        "", description="Draining, Drained once maintenance may begin, or Restored if it was cancelled before"
    )
    elements: list[str] = Field(description="links, switches, nodes and other parts taken out of use")
    reason: str = Field("", description="why, as it was requested; empty if not given")
    even_if_floors_break: bool = Field(
        False, description="whether it was to be carried out although floors break or members are cut off"
    )
    ports: int = Field(description="number of ports of nodes and leaves that are out of use with them")
    waiting_for: int = Field(
        description="number of programs that may still send over them; 0 once maintenance may begin"
    )
    message: str = Field("", description="which programs it waits for, or that no route crosses it any more")
    what_if: WhatIfView | None = Field(None, description="effects on slices; only with validateOnly, else null")
