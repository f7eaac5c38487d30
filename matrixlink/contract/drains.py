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

    project: str = Field("default", min_length=1, max_length=63)
    labels: dict[str, str] = Field(default_factory=empty_dict, max_length=64)
    elements: Annotated[list[Element], Field(min_length=1, max_length=ELEMENTS_MAX)]
    reason: str = Field("", max_length=300)
    even_if_floors_break: bool = False


class DrainView(ResourceView):
    """A drain: the number of ports out of use, and of programs that may still send over them. `what_if` is only set
    with validateOnly."""

    elements: list[str]
    reason: str = ""
    even_if_floors_break: bool = False
    ports: int
    waiting_for: int
    message: str = ""
    what_if: WhatIfView | None = None
