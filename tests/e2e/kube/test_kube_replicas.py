"""Several processes of the embedded Kubernetes API on one PostgreSQL are one API.

Clients write through both at once, each write on the state it read; watchers on both see one and the same sequence; who
moves from one replica to the other continues where it was; and when the one whose controllers act is killed, nothing
acknowledged is lost and the other's controllers take over.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.kube.test_kube_durability import client_of, resumes
from tests.matrixcontainer.kubeapi.postgres import a_postgres, needs_postgres
from tests.matrixcontainer.kubeapi.process import KubeProcess

pytestmark = [pytest.mark.e2e, needs_postgres]

MAPS = "/api/v1/namespaces/default/configmaps"
WITHIN_S = 20.0
STEPS = 60


@contextmanager
def replicas(tmp_path: Path) -> Iterator[list[KubeProcess]]:
    with ExitStack() as stack:
        url = stack.enter_context(a_postgres())
        kubes = [KubeProcess(tmp_path / name, "--database", url) for name in ("one", "two")]
        for kube in kubes:
            stack.callback(_end, kube)
            kube.start()
        yield kubes


def _end(kube: KubeProcess) -> None:
    if kube.process is not None and kube.process.poll() is None:
        kube.kill()


def until(ask: Any, what: str) -> Any:
    """What `ask` returns once it is something; asks again until then."""
    ends = time.monotonic() + WITHIN_S
    while time.monotonic() < ends:
        if found := ask():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {WITHIN_S:.0f} s")


class Watcher(threading.Thread):
    """Follows the collection on one replica, until it has seen the object that says so."""

    def __init__(self, client: httpx.Client, since: str) -> None:
        super().__init__(daemon=True)
        self.client, self.since = client, since
        self.seen: list[tuple[str, str, str]] = []
        self.start()

    def run(self) -> None:
        query = {"watch": "true", "resourceVersion": self.since, "timeoutSeconds": "60"}
        with self.client.stream("GET", MAPS, params=query) as response:
            for line in response.iter_lines():
                event = json.loads(line)
                meta = event["object"]["metadata"]
                self.seen.append((event["type"], meta["name"], meta["resourceVersion"]))
                if meta["name"] == "the-last":
                    return


def count_up(client: httpx.Client, refused: list[int]) -> None:
    """Add to the common counter, each time on the state that was read; again when somebody was faster."""
    done = 0
    while done < STEPS:
        current = client.get(f"{MAPS}/counter").json()
        current["data"]["n"] = str(int(current["data"]["n"]) + 1)
        reported = client.put(f"{MAPS}/counter", json=current)
        if reported.status_code == 409:
            refused.append(1)
            continue
        assert reported.status_code == 200, reported.text
        done += 1


def test_two_replicas_are_one_api(tmp_path: Path) -> None:
    with replicas(tmp_path) as kubes, client_of(kubes[0]) as one, client_of(kubes[1]) as two:
        made = one.post(MAPS, json={"metadata": {"name": "counter"}, "data": {"n": "0"}})
        assert made.status_code == 201, made.text
        since = made.json()["metadata"]["resourceVersion"]
        assert two.get(f"{MAPS}/counter").json() == made.json(), "read at once where it was not written"
        watchers = [Watcher(client, since) for client in (one, two)]
        refused: list[int] = []
        writers = [threading.Thread(target=count_up, args=(client, refused)) for client in (one, two)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
        assert one.get(f"{MAPS}/counter").json()["data"]["n"] == str(2 * STEPS), "no write was lost, none counted twice"
        assert refused, "they met at least once"
        last = two.post(MAPS, json={"metadata": {"name": "the-last"}}).json()
        for watcher in watchers:
            watcher.join(WITHIN_S)
        assert watchers[0].seen == watchers[1].seen
        revisions = [int(revision) for _, _, revision in watchers[0].seen]
        assert revisions == sorted(set(revisions))
        assert len(revisions) == 2 * STEPS + 1
        assert resumes(one, int(last["metadata"]["resourceVersion"]))
        token = one.post("/api/v1/namespaces/default/serviceaccounts/default/token", json={"spec": {}}).json()
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token["status"]["token"]},
        }
        review = two.post("/apis/authentication.k8s.io/v1/tokenreviews", json=asked).json()
        assert review["status"]["authenticated"], "issued by the one, known to the other"


def test_the_other_takes_over(tmp_path: Path) -> None:
    with replicas(tmp_path) as kubes, client_of(kubes[0]) as one, client_of(kubes[1]) as two:
        reported: dict[str, str] = {}

        def write() -> None:
            try:
                for number in range(100_000):
                    name = f"w{number}"
                    if one.post(MAPS, json={"metadata": {"name": name}}).status_code == 201:
                        reported[name] = name
            except httpx.TransportError:
                return

        writer = threading.Thread(target=write)
        writer.start()
        until(lambda: len(reported) > 50, "writes through the first replica")
        kubes[0].kill()
        writer.join(30)
        current = {item["metadata"]["name"] for item in two.get(MAPS).json()["items"]}
        assert reported.keys() <= current
        made = two.post("/api/v1/namespaces", json={"metadata": {"name": "after"}})
        assert made.status_code == 201, made.text
        account = "/api/v1/namespaces/after/serviceaccounts/default"
        until(lambda: two.get(account).status_code == 200, "a controller of the second replica acts")
        kubes[0].start()
        with client_of(kubes[0]) as back:
            assert {item["metadata"]["name"] for item in back.get(MAPS).json()["items"]} == current
