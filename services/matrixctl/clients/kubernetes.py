"""The Kubernetes API of a stack, as its owner uses it: kubectl where it is on the PATH, else the Python client.

Reads go straight to the API over HTTPS with the kubeconfig's authority and token, because they are many; what changes
something goes through the tool a person would use, and `Cluster.last_command` says how that person would have typed it.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import ssl
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import yaml

from matrixcommon.model.errors import MatrixError, Unavailable
from services.matrixctl.clients.api_client import patiently
from services.matrixctl.output.screen import NotRunning
from services.matrixctl.supervisor.state_folder import Folder

AWAY = re.compile("connection refused|connection reset|EOF|TLS handshake|ServiceUnavailable|i/o timeout", re.IGNORECASE)
"""What kubectl says of an API server that is being started again."""

GROUP = "/apis/cloudmatrix.io/v1alpha1"
KUBECTL_PATIENCE_WALL_S = 60.0


class KubernetesRefused(MatrixError):
    """kubectl or the API reported no; the message is theirs."""

    status = 409


def cluster_of(folder: Folder) -> Cluster:
    """The cluster of that stack. Raises NotRunning without a kubeconfig."""
    if not folder.kubeconfig.exists():
        raise NotRunning(f"{folder.kubeconfig} is not there; the `kube` process writes it (`matrixctl up`)")
    return Cluster(folder.kubeconfig, shutil.which("kubectl"))


@dataclass
class Cluster:
    """One API server, reached as its kubeconfig says."""

    kubeconfig: Path
    kubectl: str | None
    patience_wall_s: float = 0.0
    """How long an API that is away is asked again."""
    last_command: str = field(default="", init=False)

    @cached_property
    def http(self) -> httpx.Client:
        current = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = current["clusters"][0]["cluster"], current["users"][0]["user"]
        trust = ssl.create_default_context()
        if "certificate-authority-data" in cluster:
            trust.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        elif "certificate-authority" in cluster:
            trust.load_verify_locations(cafile=self.kubeconfig.parent / cluster["certificate-authority"])
        headers = {"Authorization": f"Bearer {user['token']}", "Accept": "application/json"}
        return httpx.Client(base_url=cluster["server"], headers=headers, verify=trust, timeout=10.0, trust_env=False)

    def read(self, path: str) -> dict[str, Any] | None:
        """The object or list at that path; None where there is none."""
        return patiently(lambda: self._read(path), self.patience_wall_s)

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            answer = self.http.get(path)
        except httpx.HTTPError as wrong:
            raise Unavailable(f"the Kubernetes API does not answer at {self.http.base_url}: {wrong}") from wrong
        if answer.status_code == 404:
            return None
        if answer.status_code >= 400:
            raise KubernetesRefused(f"GET {path}: {answer.text[:300]}")
        current: dict[str, Any] = answer.json()
        return current

    def instance(self, name: str) -> dict[str, Any] | None:
        return self.read(f"{GROUP}/namespaces/default/cloudmatrixinstances/{name}")

    def serving(self, name: str) -> dict[str, Any] | None:
        return self.read(f"{GROUP}/namespaces/default/cloudmatrixinfers/{name}")

    def items(self, path: str) -> list[dict[str, Any]]:
        current = self.read(path)
        return current["items"] if current else []

    # --- what changes something

    def apply(self, file: Path) -> list[str]:
        """Apply every document of a manifest; a line for each."""
        if self.kubectl:
            return self._run("apply", "-f", str(file))
        self.last_command = f"kubectl apply --server-side -f {file}"
        return [self._python_apply(document) for document in yaml.safe_load_all(file.read_text()) if document]

    def scale(self, name: str, replicas: int) -> list[str]:
        if self.kubectl:
            return self._run("scale", f"cmi/{name}", f"--replicas={replicas}")
        self.last_command = f"kubectl scale cmi/{name} --replicas={replicas}"
        self._python(
            "cloudmatrixinstances", "patch_namespaced_custom_object_scale", name, {"spec": {"replicas": replicas}}
        )
        return [f"cloudmatrixinstance {name} scaled"]

    def delete(self, file: Path) -> list[str]:
        """Delete every document of a manifest, without waiting for finalizers."""
        if self.kubectl:
            return self._run("delete", "-f", str(file), "--wait=false")
        self.last_command = f"kubectl delete -f {file} --wait=false"
        return [self._python_delete(document) for document in yaml.safe_load_all(file.read_text()) if document]

    def show(self, *words: str) -> list[str]:
        """What `kubectl get` prints; nothing where there is no kubectl."""
        return self._run("get", *words) if self.kubectl else []

    def _run(self, *words: str) -> list[str]:
        return patiently(lambda: self._run_once(*words), self.patience_wall_s)

    def _run_once(self, *words: str) -> list[str]:
        assert self.kubectl is not None
        self.last_command = "kubectl " + " ".join(words)
        done = subprocess.run(
            [self.kubectl, *words],
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=KUBECTL_PATIENCE_WALL_S,
            check=False,
        )
        if done.returncode != 0:
            text = " ".join(done.stderr.split()) or f"{self.last_command}: exit {done.returncode}"
            raise Unavailable(text) if AWAY.search(text) else KubernetesRefused(text)
        return done.stdout.rstrip("\n").splitlines()

    def _python(self, plural: str, verb: str, name: str, body: Any = None) -> Any:
        from kubernetes import client, config

        api = client.CustomObjectsApi(config.new_client_from_config(config_file=str(self.kubeconfig)))
        arguments = ["cloudmatrix.io", "v1alpha1", "default", plural, name, *([] if body is None else [body])]
        try:
            return getattr(api, verb)(*arguments)
        except client.ApiException as refused:
            raise KubernetesRefused(f"{verb} {plural}/{name}: {refused.reason} {refused.body}") from refused

    def _dynamic(self) -> Any:
        from kubernetes import config, dynamic

        return dynamic.DynamicClient(config.new_client_from_config(config_file=str(self.kubeconfig)))

    def _python_apply(self, document: dict[str, Any]) -> str:
        from kubernetes.client import ApiException

        kind, name = document["kind"], document["metadata"]["name"]
        try:
            resource = self._dynamic().resources.get(api_version=document["apiVersion"], kind=kind)
            resource.server_side_apply(
                body=document,
                name=name,
                namespace=document["metadata"].get("namespace", "default") if resource.namespaced else None,
                field_manager="matrixctl",
                force_conflicts=True,
            )
        except ApiException as refused:
            raise KubernetesRefused(f"{kind} {name}: {refused.reason} {refused.body}") from refused
        return f"{kind.lower()} {name} applied"

    def _python_delete(self, document: dict[str, Any]) -> str:
        from kubernetes.client import ApiException

        kind, name = document["kind"], document["metadata"]["name"]
        try:
            resource = self._dynamic().resources.get(api_version=document["apiVersion"], kind=kind)
            resource.delete(name=name, namespace="default" if resource.namespaced else None)
        except ApiException as refused:
            raise KubernetesRefused(f"{kind} {name}: {refused.reason} {refused.body}") from refused
        return f"{kind.lower()} {name} deleted"
