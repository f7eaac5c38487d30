"""What MatrixCompute is set by."""

from __future__ import annotations

from pydantic import Field

from services.chassis.settings import LedSettings


class ComputeSettings(LedSettings):
    """MatrixCompute: the life of instances, and their recovery."""

    resource_url: str = Field("http://127.0.0.1:8401", description="where MatrixResource is")
    link_url: str = Field("http://127.0.0.1:8402", description="where MatrixLink is")
    infer_url: str = Field(
        "http://127.0.0.1:8404",
        description="where CloudMatrix-Infer is: its load is looked at and its nodes are drained; empty: nowhere",
    )
    agents_url: str = Field(
        "http://127.0.0.1:8405", description="where the emulated hardware takes the faults of scenarios; empty: nowhere"
    )
    lost_per_cabinet: int = Field(
        4,
        ge=1,
        description="safety stop: how many nodes of a cabinet may be out while members there are replaced",
    )
    lost_per_supernode: int = Field(8, ge=1, description="safety stop: the same for a whole supernode")
    drain_seconds: float = Field(
        600.0,
        ge=0,
        le=86_400,
        description="how long a member that serves may drain (emulated) before it is moved or repaired; 0: not at all",
    )
