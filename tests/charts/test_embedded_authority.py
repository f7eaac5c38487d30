"""The embedded Kubernetes API, when the chart runs it, answers under the authority and the token the chart made."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import httpx
import pytest
import yaml

from matrixcontainer.client.login import http_client_for, login
from tests.charts.rendered import template
from tests.matrixcontainer.kubeapi.process import KubeProcess


@pytest.mark.usefixtures("helm_here")
async def test_the_operators_kubeconfig_opens_the_embedded_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = yaml.safe_load_all(template("--set", "kube.enabled=true"))
    secret = next(each for each in documents if each and "kubeconfig" in each.get("stringData", {}))
    current = {key: base64.b64decode(value) for key, value in secret["data"].items()}
    folder = tmp_path / "kube" / "kube"
    folder.mkdir(parents=True)
    for name in ("ca.crt", "ca.key"):
        (folder / name).write_bytes(current[name])
    monkeypatch.setitem(os.environ, "CLOUDMATRIX_KUBE_ADMIN_TOKEN", current["admin-token"].decode())
    service = yaml.safe_load(secret["stringData"]["kubeconfig"])["clusters"][0]["cluster"]["server"]
    host = service.removeprefix("https://").partition(":")[0]
    process = KubeProcess(tmp_path / "kube", "--certificate-names", host).start()
    try:
        here = secret["stringData"]["kubeconfig"].replace(service, f"https://127.0.0.1:{process.port}")
        (tmp_path / "kubeconfig").write_text(here)
        async with http_client_for(login(tmp_path / "kubeconfig")) as http:
            assert (await http.get("/api/v1/namespaces")).status_code == 200
            # By the name that pods know it by, the certificate holds too.
            named = await http.get("/readyz", headers={"Host": host}, extensions={"sni_hostname": host})
            assert named.status_code == 200
    except httpx.ConnectError as wrong:
        raise AssertionError(f"the certificate is not the authority's: {wrong}") from wrong
    finally:
        process.stop()
