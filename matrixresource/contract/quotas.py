"""Quotas of projects: requests and views."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.fields import MEMBERS_MAX, NpuCount


class QuotaRequest(ApiModel):
    """How much a project may hold at once. Anything left out is unlimited. A spare counts as eight NPUs."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"npus": 80},)

    npus: Annotated[float | None, Field(ge=0, le=MEMBERS_MAX * 8, multiple_of=0.5)] = None
    cpus: Annotated[int | None, Field(ge=0, le=1 << 40)] = None
    memory_gib: Annotated[int | None, Field(ge=0, le=1 << 40)] = None


class QuotaView(ResourceView):
    """A project's limits and its current usage."""

    npus: NpuCount | None = None
    cpus: int | None = None
    memory_gib: int | None = None
    used_npus: NpuCount = 0
    used_cpus: float = 0
    used_memory_gib: float = 0
