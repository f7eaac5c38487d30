"""Where a Kubernetes API is and who we are: Kopf finds out, for itself and for us."""

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
    """Where a Kubernetes API is and who we are: by a kubeconfig's current context, or by a pod's service account."""
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(kubeconfig)
    how = kopf.login_with_service_account if kubeconfig is None else kopf.login_with_kubeconfig
    found = how(settings=kopf.OperatorSettings())
    if found is None:
        raise Unavailable("there is neither a kubeconfig nor a service account")
    return found


def leads_to(kubeconfig: Path, url: str) -> bool:
    """Whether a kubeconfig is there, and of an API that listens on the port of that URL, where one is given: the file
    may be of an earlier life of the API, which listened elsewhere."""
    try:
        found = parse_yaml(kubeconfig.read_text())
        server = found["clusters"][0]["cluster"]["server"]
    except FileNotFoundError:
        return False
    except (KeyError, IndexError, TypeError, ValueError):
        return not url  # whoever logs in by it hears what is wrong with it
    return not url or urlsplit(str(server)).port == urlsplit(url).port


def http_of(access: kopf.ConnectionInfo) -> httpx.AsyncClient:
    """A client that trusts this API's authority and shows our token or certificate."""
    return httpx.AsyncClient(
        base_url=access.server,
        verify=access.as_ssl_context(),
        trust_env=False,
        headers={"User-Agent": MANAGER, **access.as_http_headers()},
        timeout=httpx.Timeout(15.0, connect=3.0),
    )
