"""Quotas of projects: requests and views."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.fields import MEMBERS_MAX, NpuCount


class QuotaRequest(ApiModel):
    """How much a project may hold at once. Anything left out is unlimited. A spare counts as eight NPUs."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"npus": 80},)

    npus: float | None = Field(
        None,
        ge=0,
        le=MEMBERS_MAX * 8,
        multiple_of=0.5,
        description="most NPUs that it may hold and be promised at once, a spare counting as a whole node; absent: "
        "unlimited",
    )
    cpus: int | None = Field(
        None,
        ge=0,
        le=1 << 40,
        description="most CPU sockets that it may request as such; those of whole nodes do not count; absent: any",
    )
    memory_gib: int | None = Field(
        None,
        ge=0,
        le=1 << 40,
        description="most memory that it may request as such (GiB); that of whole nodes does not count; absent: "
        "unlimited",
    )


class QuotaView(ResourceView):
    """A project's limits and its current usage."""

    npus: NpuCount | None = Field(None, description="limit for NPUs, a spare counting as a whole node; null: unlimited")
    cpus: int | None = Field(None, description="limit for CPU sockets requested as such; null: unlimited")
    memory_gib: int | None = Field(None, description="limit for memory requested as such, GiB; null: unlimited")
    used_npus: NpuCount = Field(0, description="NPUs that the project holds or is promised, spares included")
    used_cpus: float = Field(0, description="CPU sockets that it holds or is promised, without those of whole nodes")
    used_memory_gib: float = Field(
        0, description="memory that it holds or is promised, GiB, without that of whole nodes"
    )
