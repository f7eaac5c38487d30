"""EventView: what every service shows of something that happened."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from matrixcommon.model.resource_model import ResourceView


class EventView(ResourceView):
    """Something that happened to a resource or a part of the hardware (`about`), described for people."""

    state: str = Field("", description="always Seen")
    about: str = Field(
        description="name of what it happened to, such as an instance, node, link or switch; the key of a slice"
    )
    project: str | None = Field(  # type: ignore[assignment]  # hardware belongs to no project
        None, description="project of the resource it is about; null for hardware, which belongs to none"
    )
    at: str = Field(description="when it happened, in emulated time")
    type: Literal["Normal", "Warning"] = Field(
        description="Warning if something became worse or needs attention, else Normal"
    )
    reason: str = Field(description="what happened, as one word for programs")
    message: str = Field(description="what happened, as a sentence for people")
