"""Kopf's managed admission, unchanged, against the embedded Kubernetes API: an operator that changes and refuses."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from matrixcontainer.kubeapi.transport.certificates import certificate_files, ensure_certificates
from tests.matrixcontainer.kubeapi.api_session import a_crd, a_widget
from tests.matrixcontainer.kubeapi.process import KubeProcess, needs_kubectl

pytestmark = [pytest.mark.e2e, needs_kubectl]

OPERATOR = """
    import kopf

    @kopf.on.startup()
    def configure(settings, **_):
        settings.admission.managed = "auto.kopf.dev"
        settings.admission.server = kopf.WebhookServer(
            addr="127.0.0.1", host="127.0.0.1", cafile="{ca}", certfile="{certificate}", pkeyfile="{key}")

    @kopf.on.mutate("example.test", "v1", "widgets")
    def fill(spec, patch, warnings, **_):
        if spec.get("color") == "red":
            patch.spec["note"] = "painted"
            warnings.append("red is loud")

    @kopf.on.validate("example.test", "v1", "widgets", operation="CREATE")
    def judge(spec, **_):
        if spec["size"] > 50:
            raise kopf.AdmissionError("too big for us", code=403)
"""


def test_an_operator_changes_and_refuses(tmp_path: Path) -> None:
    kube = KubeProcess(tmp_path / "kube").start()
    ensure_certificates(tmp_path, [])
    ca, certificate, key = certificate_files(tmp_path)
    script, log = tmp_path / "operator.py", tmp_path / "operator.log"
    script.write_text(textwrap.dedent(OPERATOR).format(ca=ca, certificate=certificate, key=key))
    running = None
    try:
        kube.kubectl("apply", "-f", "-", stdin=a_crd())
        kube.kubectl("wait", "--for=condition=Established", "crd/widgets.example.test", "--timeout=10s")
        command = [sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", str(script)]
        running = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT, env=kube.environment())
        show = (
            "get",
            "mutatingwebhookconfigurations,validatingwebhookconfigurations",
            "-o",
            "jsonpath={.items[*].webhooks[*].rules}",
        )
        deadline = time.monotonic() + 40
        while kube.kubectl(*show).count("widgets") < 2:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        text = kube.kubectl("apply", "-f", "-", stdin=a_widget())
        assert "red is loud" in text
        assert kube.kubectl("get", "wd", "one", "-o", "jsonpath={.spec.note}") == "painted"
        text = kube.kubectl("apply", "-f", "-", stdin=a_widget("two", spec={"size": 60}), fails=True)
        assert "denied the request: too big for us" in text
    finally:
        if running is not None:
            running.terminate()
            running.wait(timeout=20)
        kube.stop()
