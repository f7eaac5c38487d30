"""The operator's CRDs: applied at its start, and again whenever somebody deletes one.

Deleting a CRD deletes its objects first: each passes through its finalizer like any other deleted resource, so what it
stands for is released before the CRD is gone. Nothing brings those objects back but whoever applied them; the mirrors
are written again. The log says which objects a CRD took with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import MatrixError, NotFound
from matrixcommon.model.resource_model import is_condition_true
from matrixcontainer.client.client import CRD, Kind, KubeClient

log = logging.getLogger(__name__)

POLL_WALL_S = 0.05
RETRY_WALL_S = 0.5
NAMES_LOGGED_MAX = 20


class CrdInstaller:
    """Keeps `definitions` installed."""

    def __init__(
        self, kube: KubeClient, definitions: list[dict[str, Any]], on_restored: Callable[[], None] = lambda: None
    ) -> None:
        self._kube = kube
        self._definitions = {crd["metadata"]["name"]: crd for crd in definitions}
        self._on_restored = on_restored
        self._objects_lost: dict[str, list[str]] = {}
        """Objects of each CRD that is being deleted, as they were when that was noticed."""

    async def install(self) -> None:
        """Apply the CRDs and wait until they are established; retries while the API is down."""
        while True:
            try:
                return await self._apply(*self._definitions)
            except MatrixError as refused:
                log.warning("could not install the CRDs; retrying", extra={"why": refused.message})
                await asyncio.sleep(RETRY_WALL_S)

    async def keep(self) -> None:
        """Forever: install again what others delete."""
        refusal = ""
        while True:
            try:
                since = await self._restore_missing()
                refusal = ""
                async for type, body in self._kube.watch(CRD, since):
                    if type == "DELETED" or body["metadata"].get("deletionTimestamp"):
                        await self._handle_deletion(type, body)
            except MatrixError as refused:
                if refused.message != refusal:  # an API that is down is retried twice a second but logged once
                    log.info("watch of the CRDs ended", extra={"why": refused.message})
                refusal = refused.message
            await asyncio.sleep(RETRY_WALL_S)

    async def _restore_missing(self) -> str:
        """Handle deletions that no watch reported; return the resourceVersion to watch from."""
        present, since = await self._kube.list(CRD)
        by_name = {crd["metadata"]["name"]: crd for crd in present}
        for name, definition in self._definitions.items():
            if name not in by_name:
                await self._handle_deletion("DELETED", definition)
            elif by_name[name]["metadata"].get("deletionTimestamp"):
                await self._handle_deletion("MODIFIED", by_name[name])
        return since

    async def _handle_deletion(self, type: str, crd: dict[str, Any]) -> None:
        name = crd["metadata"]["name"]
        if name not in self._definitions:
            return
        if type == "DELETED":
            await self._apply(name)
            _log_loss("a deleted CRD is installed again, without its objects", name, self._objects_lost.pop(name, []))
            self._on_restored()
        elif name not in self._objects_lost:
            self._objects_lost[name] = await self._object_names(crd)
            _log_loss(
                "a CRD is being deleted with all of its objects; those still there are listed",
                name,
                self._objects_lost[name],
            )

    async def _object_names(self, crd: dict[str, Any]) -> list[str]:
        """The objects of a CRD, each as `namespace/name`, or `name` if cluster-wide."""
        spec = crd["spec"]
        kind = Kind(f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["kind"], spec["names"]["plural"])
        try:
            bodies, _ = await self._kube.list(kind)
        except NotFound:  # no longer served: the last object has gone
            return []
        return sorted(
            "/".join(filter(None, (each["metadata"].get("namespace"), each["metadata"]["name"]))) for each in bodies
        )

    async def _apply(self, *names: str) -> None:
        """Apply CRDs and wait until all are established."""
        for name in names:
            await self._kube.apply(CRD, self._definitions[name])
        pending = set(names)
        while pending:
            for name in sorted(pending):
                current = await self._kube.find(CRD, name)
                if current is None:  # deleted meanwhile
                    await self._kube.apply(CRD, self._definitions[name])
                elif is_condition_true((current.get("status") or {}).get("conditions") or [], "Established"):
                    pending.discard(name)
            if pending:
                await asyncio.sleep(POLL_WALL_S)


def _log_loss(event: str, crd: str, objects: list[str]) -> None:
    names = ", ".join(objects[:NAMES_LOGGED_MAX]) + (", ..." if len(objects) > NAMES_LOGGED_MAX else "")
    log.warning(event, extra={"crd": crd, "objects": len(objects), "names": names})
