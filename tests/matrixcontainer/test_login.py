"""Which kubeconfig an operator waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

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
