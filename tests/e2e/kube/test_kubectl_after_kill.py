"""What was acknowledged is there after `kill -9` under load, on SQLite and on PostgreSQL; revisions never go back."""

from __future__ import annotations

import base64
import http.client
import json
import random
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.matrixcontainer.kubeapi.api_session import WIDGETS, a_crd, a_widget
from tests.matrixcontainer.kubeapi.postgres import a_postgres, needs_postgres
from tests.matrixcontainer.kubeapi.process import KubeProcess, needs_kubectl

pytestmark = [pytest.mark.e2e, needs_kubectl]

ROUNDS = 2
WRITERS = 4


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=needs_postgres)])
def kube(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KubeProcess]:
    with ExitStack() as stack:
        flags = ("--database", stack.enter_context(a_postgres())) if request.param == "postgres" else ()
        process = KubeProcess(tmp_path, *flags).start()
        yield process
        if process.process is not None and process.process.poll() is None:
            process.process.kill()
            process.process.wait()


class Client:
    """A bare HTTPS client with the administrator's token."""

    def __init__(self, kube: KubeProcess) -> None:
        config = json.loads(kube.kubeconfig.read_text())
        self.token = config["users"][0]["user"]["token"]
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        self.connection = http.client.HTTPSConnection("127.0.0.1", kube.port, context=context, timeout=20)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


def _write(kube: KubeProcess, prefix: str, acknowledged: list[tuple[str, int]]) -> None:
    client = Client(kube)
    for number in range(100_000):
        name = f"{prefix}-{number}"
        try:
            code, obj = client.ask("POST", WIDGETS, a_widget(name))
        except (OSError, http.client.HTTPException):
            return
        if code == 201:
            acknowledged.append((name, int(obj["metadata"]["resourceVersion"])))


def test_acknowledged_writes_are_there(kube: KubeProcess) -> None:
    chance = random.Random(384)
    kube.kubectl("apply", "-f", "-", stdin=a_crd())
    kube.kubectl("wait", "--for=condition=Established", "crd/widgets.example.test", "--timeout=10s")
    acknowledged: list[tuple[str, int]] = []
    for round_ in range(ROUNDS):
        before = len(acknowledged)
        writers = [
            threading.Thread(target=_write, args=(kube, f"r{round_}w{writer}", acknowledged))
            for writer in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        while len(acknowledged) < before + chance.randrange(20, 120):
            time.sleep(0.001)
        kube.kill()
        for writer in writers:
            writer.join()
        kube.start()
        code, listed = Client(kube).ask("GET", WIDGETS)
        assert code == 200
        current = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in listed["items"]}
        lost = [name for name, revision in acknowledged if current.get(name) != revision]
        assert not lost
        assert int(listed["metadata"]["resourceVersion"]) >= max(current.values())
    assert kube.stop() == 0
