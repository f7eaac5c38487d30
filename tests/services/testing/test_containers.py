"""What the Testcontainers class makes of a kubeconfig that was written inside; tests/e2e/compose has it on an engine."""

from __future__ import annotations

import yaml

from services.testing.containers import with_server_url

INSIDE = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:8443", certificate-authority-data: QQ==}}]
users: [{name: admin, user: {token: secret}}]
"""


def test_a_kubeconfig_leads_to_where_the_port_is_mapped() -> None:
    here = yaml.safe_load(with_server_url(INSIDE, "https://localhost:32768"))
    assert here["clusters"][0]["cluster"] == {"server": "https://localhost:32768", "certificate-authority-data": "QQ=="}
    assert here["users"] == [{"name": "admin", "user": {"token": "secret"}}]


def test_another_host_is_asked_for_the_certificate_it_has() -> None:
    there = yaml.safe_load(with_server_url(INSIDE, "https://10.0.0.7:32768"))["clusters"][0]["cluster"]
    assert (there["server"], there["tls-server-name"]) == ("https://10.0.0.7:32768", "localhost")
