"""An ordinary Kopf operator, unchanged, against the embedded Kubernetes API as a process; and through its death."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrixcontainer.kubeapi.api_session import a_crd, a_widget
from tests.matrixcontainer.kubeapi.process import KubeProcess, needs_kubectl

pytestmark = [pytest.mark.e2e, needs_kubectl]

OPERATOR = """
    import kopf

    @kopf.on.startup()
    def configure(settings, **_):
        settings.networking.error_backoffs = [0.2] * 50

    @kopf.on.create("example.test", "v1", "widgets")
    @kopf.on.update("example.test", "v1", "widgets", field="spec")
    def build(spec, name, patch, body, **_):
        patch.status["size"] = spec["size"]
        patch.status["conditions"] = [{"type": "Ready", "status": "True", "reason": f"Size{spec['size']}"}]
        kopf.info(body, reason="Built", message=f"built {name} of {spec['size']}")

    @kopf.on.delete("example.test", "v1", "widgets")
    def tear_down(name, **_):
        print(f"torn down {name}", flush=True)
"""


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[KubeProcess]:
    process = KubeProcess(tmp_path / "kube").start()
    process.kubectl("apply", "-f", "-", stdin=a_crd())
    process.kubectl("wait", "--for=condition=Established", "crd/widgets.example.test", "--timeout=10s")
    yield process
    process.stop()


@pytest.fixture
def operator(kube: KubeProcess, tmp_path: Path) -> Iterator[Path]:
    """The log of a running operator."""
    script, log = tmp_path / "operator.py", tmp_path / "operator.log"
    script.write_text(textwrap.dedent(OPERATOR))
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", str(script)]
    running = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT, env=kube.environment())
    yield log
    running.terminate()
    running.wait(timeout=20)


def test_the_whole_life_of_an_object(kube: KubeProcess, operator: Path) -> None:
    kube.kubectl("apply", "-f", "-", stdin=a_widget())
    kube.kubectl("wait", "wd/one", "--for=condition=Ready", "--timeout=30s")
    assert "KopfFinalizerMarker" in kube.kubectl("get", "wd", "one", "-o", "jsonpath={.metadata.finalizers}")
    kube.kubectl("scale", "wd", "one", "--replicas=8")
    kube.kubectl("wait", "wd/one", "--for=jsonpath={.status.size}=8", "--timeout=30s")
    kube.kubectl("delete", "wd", "one", "--timeout=30s")
    assert "torn down one" in operator.read_text()
    assert "built one of 3" in kube.kubectl("get", "events")
    assert "inconsistencies" not in operator.read_text()


def test_the_operator_outlives_the_server(kube: KubeProcess, operator: Path) -> None:
    kube.kubectl("apply", "-f", "-", stdin=a_widget())
    kube.kubectl("wait", "wd/one", "--for=condition=Ready", "--timeout=30s")
    kube.kill()
    kube.start()
    kube.kubectl("scale", "wd", "one", "--replicas=9")
    kube.kubectl("wait", "wd/one", "--for=jsonpath={.status.size}=9", "--timeout=45s")
    kube.kubectl("delete", "wd", "one", "--timeout=30s")
    assert "torn down one" in operator.read_text()
