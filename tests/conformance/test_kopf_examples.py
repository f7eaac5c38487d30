"""Kopf's own published examples run unchanged on the embedded API: each does what its pages say it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.operator.kopf_examples import ensure_examples
from tests.matrixcontainer.kubeapi.process import KubeProcess, needs_kubectl

pytestmark = [needs_kubectl, pytest.mark.timeout(180)]
PATIENCE_WALL_S = 45.0
LETTING_GO_WALL_S = 100.0  # Kopf looks again after a minute for a daemon that was just ending


@pytest.fixture(scope="module")
def examples(request: pytest.FixtureRequest) -> Path:
    if request.config.getoption("--servers", default="embedded") != "both":
        pytest.skip("fetched from the package index; run by `make conformance`")
    found = ensure_examples()
    if found is None:
        pytest.skip("KOPF'S EXAMPLES WERE NOT TRIED: its source package cannot be fetched here")
    return found


@pytest.fixture(scope="module")
def kube(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeProcess]:
    process = KubeProcess(tmp_path_factory.mktemp("kube")).start()
    process.kubectl("apply", "-f", str(examples / "examples" / "crd.yaml"))
    process.kubectl("wait", "--for=condition=Established", "crd/kopfexamples.kopf.dev", "--timeout=10s")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "machine"}}
    process.kubectl("apply", "-f", "-", stdin=node)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    room = {"cpu": "8", "memory": "8Gi", "pods": "50"}
    status = {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
    process.kubectl("patch", "node", "machine", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    yield process
    process.stop()


class Example:
    """One of them at work in a namespace of its own."""

    def __init__(self, kube: KubeProcess, folder: Path, name: str, log: Path) -> None:
        self.kube, self.folder, self.name = kube, folder, name
        self.namespace = f"kopf-{name}"
        self.log = log
        self.manifest = yaml.safe_load((folder / "examples" / "obj.yaml").read_text())
        kube.kubectl("create", "namespace", self.namespace)

    def __enter__(self) -> Example:
        script = str(self.folder / "examples" / self.name / "example.py")
        command = [sys.executable, "-m", "kopf", "run", "--standalone", "--verbose", "-n", self.namespace, script]
        path = os.pathsep.join([str(self.folder / "lib"), os.environ.get("PYTHONPATH", "")])
        environment = self.kube.environment() | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:  # an example of tasks that outlive the signal
            self.process.kill()
            self.process.wait()

    def kubectl(self, *words: str, stdin: Any = None) -> str:
        return self.kube.kubectl("-n", self.namespace, *words, stdin=stdin)

    def apply(self) -> None:
        self.kubectl("apply", "-f", "-", stdin=self.manifest)

    def get(self, kind: str) -> list[dict[str, Any]]:
        return list(json.loads(self.kubectl("get", kind, "-o", "json"))["items"])

    def status(self) -> dict[str, Any]:
        return dict(self.get("kopfexamples")[0].get("status") or {})

    def says(self, *words: str) -> None:
        for each in words:
            self.until(lambda each=each: each in self.log.read_text(errors="replace"), f"it says {each!r}")

    def until(self, holds: Callable[[], Any], sentence: str, patience_wall_s: float = PATIENCE_WALL_S) -> None:
        ends = time.monotonic() + patience_wall_s
        while not holds():
            assert time.monotonic() < ends, f"{sentence}\n{self.log.read_text(errors='replace')[-3000:]}"
            time.sleep(0.1)

    def ends(self) -> None:
        """Deleted, the object goes: the operator has let go of it."""
        self.kubectl("delete", "kopfexamples", "--all", "--wait=false")
        self.until(lambda: not self.get("kopfexamples"), "the object is gone", LETTING_GO_WALL_S)


def minimal(example: Example) -> None:
    example.says("And here we are! Creating")
    example.until(
        lambda: example.status().get("create_fn") == {"message": "hello world"}, "the result is in the status"
    )


def children(example: Example) -> None:
    example.until(lambda: example.status().get("create_fn", {}).get("children"), "the child is noted")
    (pod,) = example.get("pods")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "KopfExample"
    example.ends()
    example.until(lambda: not example.get("pods"), "the child goes with its owner")


def exceptions(example: Example) -> None:
    example.says("Fail once and for all.", "Handler 'eventual_success_with_a_few_messages' succeeded.")
    example.says("Handler 'eventual_failure_with_tracebacks' failed with an exception and will stop now")
    example.says("Creation is processed: 1 succeeded; 3 failed.")


def events(example: Example) -> None:
    example.until(lambda: "SomeReason" in {event["reason"] for event in example.get("events")}, "events are there")
    example.until(lambda: "SomeType" in {event["type"] for event in example.get("events")}, "one of an own type too")


def handlers(example: Example) -> None:
    example.says("CREATED 1st", "CREATED 2nd", "Creation is processed")
    patch = json.dumps({"spec": {"field": "newer"}})
    example.kubectl("patch", "kopfexample", "kopf-example-1", "--type=merge", "-p", patch)
    example.says("UPDATED", "FIELD CHANGED: value -> newer")
    example.ends()
    example.says("DELETED 1st", "DELETED 2nd")


def peering(example: Example) -> None:
    example.says("Handler 'create_fn' succeeded.")


def subhandlers(example: Example) -> None:
    example.says(
        "=== Handling creation for item1. ===", "=== Handling creation for item2. ===", "Creation is processed"
    )


def raw_events(example: Example) -> None:
    example.says("Event received: {'type': ", "Oops!")
    example.ends()
    example.says("Event received: {'type': 'DELETED'")


def builtins(example: Example) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "victim"}}
    example.kubectl("apply", "-f", "-", stdin=pod | {"spec": {"containers": [{"name": "c", "image": "i"}]}})
    example.says("=== Pod killing happens in 30s.")
    example.until(lambda: example.get("pods")[0]["status"]["phase"] == "Running", "the pod runs")
    example.kubectl("delete", "pod", "victim", "--timeout=30s")
    example.says("=== Pod killing is cancelled!")


def filters(example: Example) -> None:
    example.says("Label is matching.", "Label is absent.", "Annotation is present.", "Field value is satisfied.")
    assert "not satisfied" not in example.log.read_text()
    assert "mismatch" not in example.log.read_text()


def hooks(example: Example) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "seen"}}
    example.kubectl("apply", "-f", "-", stdin=pod | {"spec": {"containers": [{"name": "c", "image": "i"}]}})
    example.says("Starting retried...", "Logging in in 2s...", "Served by the background task.")


def daemons(example: Example) -> None:
    example.says("=> Ping from a sync daemon: field='value'", "=> Ping from an async daemon: field='value'")
    example.ends()


def timers(example: Example) -> None:
    example.says("Ping from a sync timer: field='value'", "Ping from an async timer: field='value'")


def indexing(example: Example) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "indexed", "labels": {"app": "indexed"}}}
    example.kubectl("apply", "-f", "-", stdin=pod | {"spec": {"containers": [{"name": "c", "image": "i"}]}})
    example.says("('app', 'indexed')", "Timer 'intervalled' succeeded.")


def everything(example: Example) -> None:
    example.says("Whoops!", "Starting retried...", "This pod is special for us.")
    example.until(lambda: example.status().get("create_1") == {"job1-status": 100}, "the result is in the status")
    assert example.get("pods")


EXAMPLES: dict[str, Callable[[Example], None]] = {
    "01-minimal": minimal,
    "02-children": children,
    "03-exceptions": exceptions,
    "04-events": events,
    "05-handlers": handlers,
    "06-peering": peering,
    "07-subhandlers": subhandlers,
    "08-events": raw_events,
    "10-builtins": builtins,
    "11-filtering-handlers": filters,
    "13-hooks": hooks,
    "14-daemons": daemons,
    "15-timers": timers,
    "16-indexing": indexing,
    "99-all-at-once": everything,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(kube: KubeProcess, examples: Path, tmp_path: Path, name: str) -> None:
    with Example(kube, examples, name, tmp_path / "log") as example:
        example.apply()
        EXAMPLES[name](example)
        example.ends()
        assert "inconsistencies" not in example.log.read_text(errors="replace")


def test_the_embedded_one_runs(kube: KubeProcess, examples: Path) -> None:
    """An operator in a thread of another program, over the whole cluster."""
    path = os.pathsep.join([str(examples / "lib"), os.environ.get("PYTHONPATH", "")])
    environment = kube.environment() | {"PYTHONPATH": path}
    script = str(examples / "examples" / "12-embedded" / "example.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Hello, " in done.stdout
    assert "Good bye, " in done.stdout


def test_every_example_is_here_or_elsewhere(examples: Path) -> None:
    """09 is about its own test; 17 is what test_kopf_admission.py does, with a certificate that is given."""
    there = {path.name for path in (examples / "examples").iterdir() if path.is_dir()}
    assert there == {*EXAMPLES, "12-embedded", "09-testing", "17-admission"}
