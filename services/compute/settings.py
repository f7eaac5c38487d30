"""Settings of MatrixCompute."""

from __future__ import annotations

from pydantic import Field

from services.chassis.settings import LeaderSettings


class ComputeSettings(LeaderSettings):
    """MatrixCompute: the life cycle of instances, and their recovery."""

    resource_url: str = Field("http://127.0.0.1:8401", description="URL of MatrixResource")
    link_url: str = Field("http://127.0.0.1:8402", description="URL of MatrixLink")
    infer_url: str = Field(
        "http://127.0.0.1:8404",
        description="URL of CloudMatrix-Infer, whose load is read and whose nodes are drained; empty: none",
    )
    agents_url: str = Field(
        "http://127.0.0.1:8405", description="URL of the emulated hardware, for the faults of scenarios; empty: none"
    )
    lost_per_cabinet: int = Field(
        4,
        ge=1,
        description="safety stop: most nodes of a cabinet that may be out for members there still to be replaced",
    )
    lost_per_supernode: int = Field(8, ge=1, description="safety stop: the same for a whole supernode")
    drain_seconds: float = Field(
        600.0,
        ge=0,
        le=86_400,
        description="emulated seconds that a serving member may drain before it is moved or repaired; 0: no drain",
    )
