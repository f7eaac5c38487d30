"""Clusters to install the chart on: the embedded API as a process, and a real control plane where it is built.

Neither has machines to run a container on. On the embedded API the controllers and kubelets it brings, once it brings
them, make pods ready as a cluster would; on the real control plane nothing starts, and only what its API server,
its schemas and its rules of access say is looked at.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matrixcontainer.kubeapi.controllers
from tests.charts.rendered import CHART, NAMESPACE, RELEASE, helm
from tests.matrixcontainer.kubeapi.process import KUBECTL, KubeProcess

REAL = "tests.e2e.realkube"
PATIENCE_WALL_S = 120.0


def acted_on(storage: str) -> bool:
    """Whether the embedded API has a controller for a kind, and kubelets for the pods it makes."""
    controllers = Path(matrixcontainer.kubeapi.controllers.__file__).parent
    sources = [path.read_text() for path in controllers.rglob("*.py")]
    return all(any(f'storage = "{each}"' in source for source in sources) for each in (storage, "pods"))


def real_missing() -> str | None:
    """Why there is no real control plane here; None when there is."""
    try:
        return importlib.import_module(f"{REAL}.build").missing_parts()
    except ModuleNotFoundError:
        return "nothing here starts a real control plane"


class ChartCluster:
    """A kubeconfig, and Helm and kubectl that use it."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.environment = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(folder),
            "HELM_CACHE_HOME": str(folder / "helm-cache"),
            "HELM_CONFIG_HOME": str(folder / "helm-config"),
            "HELM_DATA_HOME": str(folder / "helm-data"),
        }

    def helm(self, *arguments: str) -> str:
        return helm(*arguments, env=self.environment)

    def upgrade(self, *arguments: str) -> str:
        """Install, or upgrade what is installed."""
        return self.helm("upgrade", "--install", RELEASE, str(CHART), "-n", NAMESPACE, "--create-namespace", *arguments)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [str(KUBECTL), *arguments], input=stdin, capture_output=True, text=True, timeout=60, env=self.environment
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def get(self, kind: str, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        """The object; {} where there is none."""
        text = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return dict(json.loads(text)) if text.strip() else {}


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[ChartCluster]:
    process = KubeProcess(folder / "kube").start()
    try:
        yield ChartCluster(process.kubeconfig, folder)
    finally:
        process.stop()


@contextlib.contextmanager
def real(folder: Path) -> Iterator[ChartCluster]:
    """A real control plane; call only where `real_missing()` is None."""
    started = importlib.import_module(f"{REAL}.control_plane").RealKube(folder / "real", scheduler=False)
    with started as kube:
        yield ChartCluster(kube.kubeconfig, folder)


CLUSTERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[ChartCluster]]] = {
    "embedded": embedded,
    "real": real,
}


def eventually(what: Callable[[], Any], message: str, patience_wall_s: float = PATIENCE_WALL_S) -> Any:
    """The first truthy answer; fails with the last thing seen."""
    until = time.monotonic() + patience_wall_s
    seen: Any = None
    while time.monotonic() < until:
        seen = what()
        if seen:
            return seen
        time.sleep(0.2)
    raise AssertionError(f"{message}: not within {patience_wall_s:g} s; last seen: {seen!r}")
