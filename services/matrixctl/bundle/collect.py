"""One tar.gz of a stack: logs, status, settings, versions, resources, metrics.

    manifest.json       when and of what, what is missing and why
    versions.json       this package, Python, the system, installed packages
    status.json         each process: pid, address, readiness, restarts, memory
    stack.json          processes, ports, time, seed, database
    clock.json          how emulated time runs
    logs/NAME.log       the end of each log
    resources/KIND.json every collection of every service
    kubernetes/KIND.json custom resources, nodes, pods, events; no Secrets
    metrics/NAME.txt    Prometheus text

A stack that does not run, or a service that does not answer, leaves its part out; the manifest says so. Every text goes
through the redactor.
"""

from __future__ import annotations

import io
import json
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import timestamp
from services.chassis.version import version
from services.matrixctl.bundle.redaction import Redactor, find_secrets
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.collections import list_resources
from services.matrixctl.clients.kubernetes import Cluster, stack_cluster
from services.matrixctl.output.resource_kinds import LISTED_KINDS, ListedKind
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import stack_report

TIMEOUT_WALL_S = 5.0
KUBERNETES = {
    **{
        kind: f"/apis/cloudmatrix.io/v1alpha1/{kind}"
        for kind in (
            *("cloudmatrixinstances", "cloudmatrixinfers", "scalingpolicies", "recoverypolicies"),
            *("disruptionbudgets", "matrixfaults", "matrixfaultscenarios", "supernodes", "networkslices"),
        )
    },
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "events": "/api/v1/events",
}


class Bundle:
    """Collects the members of a bundle one after the other; calls `report_progress` with what it is reading."""

    def __init__(self, folder: StateFolder, log_bytes: int, report_progress: Callable[[str], object]) -> None:
        self._folder = folder
        self._log_bytes = log_bytes
        self._report_progress = report_progress
        self._redactor = Redactor(find_secrets(folder.path))
        self.missing: dict[str, str] = {}

    def write(self, file: Path) -> int:
        """Write the bundle, readable only by its owner; returns the number of members. Raises OSError."""
        members = 0
        draft = file.with_name(f".{file.name}.new")
        try:
            with draft.open("wb") as raw:
                draft.chmod(0o600)
                with tarfile.open(fileobj=raw, mode="w:gz") as tar:
                    for name, text in self._members():
                        content = self._redactor.redact(text).encode()
                        entry = tarfile.TarInfo(f"bundle/{name}")
                        entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
                        tar.addfile(entry, io.BytesIO(content))
                        members += 1
            draft.replace(file)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        return members

    def _members(self) -> Iterator[tuple[str, str]]:
        yield "versions.json", _json(_versions())
        yield from self._try("status", "status.json", lambda: _json(stack_report(self._folder).document()))
        for file in (self._folder.stack_file, self._folder.clock_file):
            yield from self._try(file.name, file.name, file.read_text)
        for log in sorted(self._folder.logs.glob("*.log*")):
            yield from self._try(log.name, f"logs/{log.name}", partial(_log_tail, log, self._log_bytes))
        yield from self._service_members()
        yield from self._kubernetes_members()
        yield (
            "manifest.json",
            _json(
                {
                    "made": timestamp(time.time()),
                    "state": str(self._folder.path),
                    "missing": self.missing,
                    "secretsHidden": self._redactor.found,
                }
            ),
        )

    def _service_members(self) -> Iterator[tuple[str, str]]:
        try:
            client = ApiClient.of(self._folder)
        except MatrixError as refused:
            self.missing["services"] = refused.message
            return
        client.deadline_wall_s = TIMEOUT_WALL_S
        for noun in LISTED_KINDS:
            if noun.service in client.stack.children:
                yield from self._try(noun.name, f"resources/{noun.name}.json", partial(_resources, client, noun))
        for name in client.stack.children:
            if name != "kube":
                yield from self._try(f"metrics of {name}", f"metrics/{name}.txt", partial(_metrics, client, name))

    def _kubernetes_members(self) -> Iterator[tuple[str, str]]:
        try:
            cluster = stack_cluster(self._folder)
        except MatrixError as refused:
            self.missing["kubernetes"] = refused.message
            return
        for kind, path in KUBERNETES.items():
            yield from self._try(f"{kind} of Kubernetes", f"kubernetes/{kind}.json", partial(_objects, cluster, path))

    def _try(self, what: str, name: str, read: Callable[[], str]) -> Iterator[tuple[str, str]]:
        """Yield the member, or record in the manifest why it is missing."""
        self._report_progress(what)
        try:
            text = read()
        except Exception as wrong:  # a bundle is made when something is wrong, so no error may stop it
            self.missing[name] = getattr(wrong, "message", "") or f"{type(wrong).__name__}: {wrong}"
        else:
            yield name, text


def _resources(client: ApiClient, noun: ListedKind) -> str:
    return _json(list_resources(client, noun))


def _metrics(client: ApiClient, service: str) -> str:
    return client.fetch(service, "/metrics").text


def _objects(cluster: Cluster, path: str) -> str:
    return _json(cluster.read(path))


def _log_tail(log: Path, most: int) -> str:
    """The last bytes of a file, starting at the beginning of a line."""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - most))
        text = file.read().decode(errors="replace")
    return text if size <= most else text.partition("\n")[2]


def _versions() -> dict[str, Any]:
    return {
        "cloudmatrix": version(),
        "python": sys.version,
        "system": platform.platform(),
        "processors": platform.machine(),
        "packages": dict(sorted((each.name, each.version) for each in metadata.distributions())),
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str)
