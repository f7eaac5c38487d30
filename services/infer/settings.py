"""What the infer process can be reported."""

from __future__ import annotations

from pydantic import Field

from services.chassis.settings import ServiceSettings


class InferSettings(ServiceSettings):
    """CloudMatrix-Infer: serving deployments and their OpenAI-compatible endpoint."""

    link_url: str = Field("http://127.0.0.1:8402", description="where MatrixLink is")
    agents_url: str = Field("http://127.0.0.1:8405", description="where the emulated hardware is; empty: not felt")
    public_url: str = Field("", description="where users find this service; by default its own address")
