"""Find the Kubernetes API and our credentials with Kopf's login functions, for Kopf and for KubeClient."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import kopf

from matrixcommon.model.errors import Unavailable
from matrixcommon.model.yaml_text import parse_yaml
from matrixcontainer.client.client import MANAGER


def login(kubeconfig: Path | None) -> kopf.ConnectionInfo:
    """Connection and credentials from a kubeconfig's current context, or else from the pod's service account."""
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(kubeconfig)
    authenticate = kopf.login_with_service_account if kubeconfig is None else kopf.login_with_kubeconfig
    connection = authenticate(settings=kopf.OperatorSettings())
    if connection is None:
        raise Unavailable("no usable kubeconfig or service account found")
    return connection


def points_to(kubeconfig: Path, url: str) -> bool:
    """Whether the kubeconfig exists and, if `url` is given, points to an API on the same port: the file may be left
    over from an earlier run on another port."""
    try:
        config = parse_yaml(kubeconfig.read_text())
        server = config["clusters"][0]["cluster"]["server"]
    except FileNotFoundError:
        return False
    except (KeyError, IndexError, TypeError, ValueError):
        return not url  # logging in with it reports what is wrong
    return not url or urlsplit(str(server)).port == urlsplit(url).port


def http_client_for(connection: kopf.ConnectionInfo) -> httpx.AsyncClient:
    """An HTTP client that trusts this API's CA and authenticates with our token or certificate."""
    return httpx.AsyncClient(
        base_url=connection.server,
        verify=connection.as_ssl_context(),
        trust_env=False,
        headers={"User-Agent": MANAGER, **connection.as_http_headers()},
        timeout=httpx.Timeout(15.0, connect=3.0),
    )
