"""The Kubernetes API of a stack, with its owner's credentials.

It is asked over HTTPS with the kubeconfig's authority and token; `Cluster.last_command` says how a person would have
typed what changed something.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrixcommon.model.errors import NotFound, Unavailable
from matrixcommon.model.yaml_text import parse_yaml
from matrixcontainer.client.client import INFER, INSTANCE, Kind, parse_response
from services.matrixctl.clients.api_client import retry_while_unavailable
from services.matrixctl.clients.input_files import read_manifests
from services.matrixctl.output.screen import NotRunning
from services.matrixctl.supervisor.state_folder import StateFolder

if TYPE_CHECKING:
    import httpx

TABLE_HEADERS = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
APPLY_HEADERS = {"Content-Type": "application/apply-patch+yaml"}
MERGE_PATCH_HEADERS = {"Content-Type": "application/merge-patch+json"}
APPLY_PARAMS = {"fieldManager": "matrixctl", "force": "true"}
NAMESPACE = "default"


def stack_cluster(folder: StateFolder) -> Cluster:
    """The stack's cluster. Raises NotRunning if there is no kubeconfig."""
    if not folder.kubeconfig.exists():
        raise NotRunning(f"{folder.kubeconfig} does not exist; the `kube` process writes it (`matrixctl up`)")
    return Cluster(folder.kubeconfig)


@dataclass
class Cluster:
    """One API server, reached by its kubeconfig. Verbs raise the same errors as KubeClient's."""

    kubeconfig: Path
    timeout_wall_s: float = 0.0
    """How long to retry while the API is down."""
    last_command: str = field(default="", init=False)

    @cached_property
    def http(self) -> httpx.Client:
        import httpx

        try:
            current = parse_yaml(self.kubeconfig.read_text())
            cluster, user = current["clusters"][0]["cluster"], current["users"][0]["user"]
        except (KeyError, IndexError, TypeError, ValueError) as wrong:
            raise NotRunning(f"{self.kubeconfig} names no cluster or no user; `matrixctl up` rewrites it") from wrong
        data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
        trust = ssl.create_default_context(
            cadata=base64.b64decode(data).decode() if data else None,
            cafile=self.kubeconfig.parent / file if file and not data else None,
        )
        headers = {"Authorization": f"Bearer {user['token']}", "Accept": "application/json"}

        def set_server_name(request: httpx.Request) -> None:
            if "tls-server-name" in cluster:  # the certificate bears another name than the address
                request.extensions["sni_hostname"] = cluster["tls-server-name"]

        return httpx.Client(
            base_url=cluster["server"], headers=headers, verify=trust, timeout=10.0, trust_env=False,
            event_hooks={"request": [set_server_name]},
        )  # fmt: skip

    def send(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        import httpx

        def once() -> dict[str, Any]:
            try:
                return parse_response(self.http.request(method, path, **more))
            except httpx.HTTPError as wrong:
                raise Unavailable(f"the Kubernetes API does not answer at {self.http.base_url}: {wrong}") from wrong

        return retry_while_unavailable(once, self.timeout_wall_s)

    def read(self, path: str) -> dict[str, Any] | None:
        """The object or list at that path; None if there is none."""
        try:
            return self.send("GET", path)
        except NotFound:
            return None

    def instance(self, name: str) -> dict[str, Any] | None:
        return self.read(INSTANCE.path(NAMESPACE, name))

    def serving(self, name: str) -> dict[str, Any] | None:
        return self.read(INFER.path(NAMESPACE, name))

    def items(self, path: str) -> list[dict[str, Any]]:
        current = self.read(path)
        return current["items"] if current else []

    def table(self, kind: Kind) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows as shown by `kubectl get`."""
        seen = self.send("GET", kind.path(NAMESPACE), headers=TABLE_HEADERS)
        shown = [at for at, column in enumerate(seen["columnDefinitions"]) if not column.get("priority")]
        titles = [seen["columnDefinitions"][at]["name"] for at in shown]
        return titles, [[row["cells"][at] for at in shown] for row in seen["rows"] or []]

    # --- what changes something

    def apply(self, file: Path) -> list[str]:
        """Server-side apply every document of a manifest; returns a line for each."""
        self.last_command = f"kubectl apply --server-side -f {file}"
        return self.apply_all(read_manifests(file))

    def apply_all(self, documents: Iterable[dict[str, Any]]) -> list[str]:
        """The same for documents already read."""
        return self._each(documents, "applied", "PATCH", params=APPLY_PARAMS, headers=APPLY_HEADERS)

    def apply_object(self, document: dict[str, Any]) -> dict[str, Any]:
        """Server-side apply one object and return it as stored."""
        return self.send("PATCH", self._path(document), json=document, params=APPLY_PARAMS, headers=APPLY_HEADERS)

    def delete(self, file: Path) -> list[str]:
        """Delete every document of a manifest, without waiting for finalizers."""
        self.last_command = f"kubectl delete -f {file} --wait=false"
        return self.delete_all(read_manifests(file))

    def delete_all(self, documents: Iterable[dict[str, Any]]) -> list[str]:
        """The same for documents already read."""
        return self._each(documents, "deleted", "DELETE")

    def scale(self, name: str, replicas: int) -> list[str]:
        self.last_command = f"kubectl scale cmi/{name} --replicas={replicas}"
        body = {"spec": {"replicas": replicas}}
        self.send("PATCH", INSTANCE.path(NAMESPACE, name, "scale"), json=body, headers=MERGE_PATCH_HEADERS)
        return [f"cloudmatrixinstance {name} scaled"]

    def _each(self, documents: Iterable[dict[str, Any]], done: str, method: str, **more: Any) -> list[str]:
        lines = []
        for document in documents:
            body = {"json": document} if method == "PATCH" else {}
            self.send(method, self._path(document), **body, **more)
            lines.append(f"{document['kind'].lower()} {document['metadata']['name']} {done}")
        return lines

    def _path(self, document: dict[str, Any]) -> str:
        """The path of an object of any kind, from API discovery. Raises NotFound."""
        version, kind, metadata = document["apiVersion"], document["kind"], document["metadata"]
        for found in self.send("GET", Kind(version, kind, "").path())["resources"]:
            if found["kind"] == kind and "/" not in found["name"]:
                namespace = metadata.get("namespace", NAMESPACE)
                return Kind(version, kind, found["name"], found["namespaced"]).path(namespace, metadata["name"])
        raise NotFound(f"the API has no kind {kind} in {version}", field="kind")
