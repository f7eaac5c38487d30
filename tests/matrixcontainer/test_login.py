"""How an operator reaches the Kubernetes API: which kubeconfig it waits for, and what its connection survives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web

from matrixcontainer.client.kopf_session import kopf_session
from matrixcontainer.client.login import points_to

OF_8443 = "clusters: [{name: one, cluster: {server: 'https://127.0.0.1:8443'}}]"


@pytest.mark.parametrize(
    ("text", "url", "leads"),
    [
        (None, "", False),
        (None, "https://127.0.0.1:8443", False),
        (OF_8443, "", True),
        (OF_8443, "https://127.0.0.1:8443", True),
        (OF_8443, "https://localhost:8443", True),  # the address that it advertises may be another
        (OF_8443, "https://127.0.0.1:50949", False),  # of an earlier life, or an earlier port
        ("", "https://127.0.0.1:8443", False),  # being written
        ("clusters: []", "https://127.0.0.1:8443", False),
        ("clusters: []", "", True),  # Kopf says what is wrong with it
    ],
)
def test_kubeconfig_of_an_earlier_api_run_is_not_used(tmp_path: Path, text: str | None, url: str, leads: bool) -> None:
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    assert points_to(file, url) is leads


@pytest.fixture
async def not_found() -> Any:
    """A session with an API that serves nothing."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    session = kopf_session(kopf.ConnectionInfo(server=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    yield session
    await session.aiohttp_session.close()
    await runner.cleanup()


KIND = "/apis/cloudmatrix.io/v1alpha1/cloudmatrixinstances"


@pytest.mark.parametrize("path", [f"{KIND}?watch=true", KIND, f"/k8s/clusters/one{KIND}"])
async def test_unserved_kind_is_retried_by_kopf(not_found: kopf.AiohttpSession, path: str) -> None:
    with pytest.raises(aiohttp.ClientConnectionError, match="is not served"):
        await not_found.aiohttp_session.get(not_found.server + path)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/apis/cloudmatrix.io/v1alpha1"), ("GET", f"{KIND}/one"), ("PATCH", f"{KIND}/one"), ("POST", KIND)],
)
async def test_other_missing_things_are_answered(not_found: kopf.AiohttpSession, method: str, path: str) -> None:
    async with not_found.aiohttp_session.request(method, not_found.server + path) as answer:
        assert answer.status == 404
