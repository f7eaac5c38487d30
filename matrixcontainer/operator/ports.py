"""What the operator asks of CloudMatrix-Infer and of the emulated hardware."""

from __future__ import annotations

from typing import Any, Protocol


class Inference(Protocol):
    """What the operator asks of CloudMatrix-Infer's service; documents are its wire views."""

    async def ensure(self, name: str, request: dict[str, Any]) -> dict[str, Any]: ...
    async def find(self, name: str) -> dict[str, Any] | None: ...
    async def statistics(self, name: str) -> dict[str, Any]: ...
    async def drain(self, name: str, nodes: list[str]) -> dict[str, Any]: ...
    async def undrain(self, name: str) -> None: ...
    async def delete(self, name: str) -> bool:
        """True once there is no such deployment."""


class Faults(Protocol):
    """What the operator asks of the emulated hardware."""

    async def inject(self, name: str, request: dict[str, Any]) -> None: ...
    async def clear(self, name: str) -> None: ...
