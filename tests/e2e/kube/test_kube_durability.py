"""What the embedded Kubernetes API acknowledged is there after `kill -9`, whenever it strikes.

Writers create, patch and delete without pause; the process is killed at a random moment, on its way up or under load, and
started again over the same folder. Each object must then be as its writer last heard, or as the one write of his that was
still under way would have left it. Revisions never go back, and a watch resumes from what was acknowledged.
"""

from __future__ import annotations

import json
import random
import ssl
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.realkube.control_plane import resident_mb
from tests.figures import Figures
from tests.matrixcontainer.kubeapi.process import KubeProcess

pytestmark = pytest.mark.e2e
WRITERS = 4
PATH = "/api/v1/namespaces/default/configmaps"
ABSENT = "absent"


@dataclass
class Writer:
    """One client: what it was informed of each of its objects, and what it asked for last without hearing an answer."""

    number: int
    chance: random.Random
    reported: dict[str, str] = field(default_factory=dict)
    unheard: tuple[str, str] | None = None
    revision: int = 0
    acknowledged: int = 0
    refused: list[str] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)

    def write_until_cut_off(self, client: httpx.Client) -> None:
        try:
            while not self.refused:
                self._write(client)
        except httpx.TransportError:
            return

    def _write(self, client: httpx.Client) -> None:
        living = [name for name, value in self.reported.items() if value != ABSENT]
        action = self.chance.random()
        value = f"v{self.chance.random()}"
        if action < 0.5 or not living:
            name = f"w{self.number}-{len(self.reported)}"
            self.unheard = (name, value)
            reported = client.post(PATH, json={"metadata": {"name": name}, "data": {"k": value}})
        elif action < 0.9:
            name = self.chance.choice(living)
            self.unheard = (name, value)
            kind = {"content-type": "application/merge-patch+json"}
            reported = client.patch(f"{PATH}/{name}", content=json.dumps({"data": {"k": value}}), headers=kind)
        else:
            name, value = self.chance.choice(living), ABSENT
            self.unheard = (name, value)
            reported = client.delete(f"{PATH}/{name}")
        self.figures.answered(reported.elapsed.total_seconds())
        if reported.status_code >= 300:
            self.refused.append(f"{reported.status_code} {reported.text[:300]}")
            return
        self.reported[name], self.unheard = value, None
        self.acknowledged += 1
        if value != ABSENT:
            self.revision = int(reported.json()["metadata"]["resourceVersion"])

    def check(self, current: dict[str, str]) -> None:
        """The store against what was reported; what was unheard is settled by it."""
        name, value = self.unheard or ("", "")
        for own, text in self.reported.items():
            found = current.get(own, ABSENT)
            assert found == text or (own == name and found == value), f"{own}: reported {text}, found {found}"
        if name:
            self.reported[name] = current.get(name, ABSENT)
            assert self.reported[name] in (value, ABSENT) or name in current
        self.unheard = None


def client_of(kube: KubeProcess) -> httpx.Client:
    current = json.loads(kube.kubeconfig.read_text())
    verify = ssl.create_default_context(cafile=str(kube.state / "kube" / "ca.crt"))
    headers = {"authorization": f"Bearer {current['users'][0]['user']['token']}"}
    url = current["clusters"][0]["cluster"]["server"]
    return httpx.Client(base_url=url, verify=verify, headers=headers, timeout=30.0, trust_env=False)


def kill_and_look(kube: KubeProcess, writers: list[Writer], chance: random.Random) -> float:
    """One round: load, death at a random moment, another start, and the store against what was reported.

    The memory that the process had at its end, in MB."""
    with client_of(kube) as client:
        threads = [threading.Thread(target=one.write_until_cut_off, args=(client,)) for one in writers]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0.0, 0.5))  # the moment of death, not a wait for anything
        assert kube.process is not None
        memory_mb = resident_mb(kube.process.pid)
        kube.kill()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
    assert not [one.refused for one in writers if one.refused]
    kube.start()
    with client_of(kube) as client:
        reported = client.get(PATH).json()
        current = {item["metadata"]["name"]: item["data"].get("k", "") for item in reported["items"]}
        for one in writers:
            one.check(current)
        last = max(one.revision for one in writers)
        assert int(reported["metadata"]["resourceVersion"]) >= last
        assert resumes(client, last)
    return memory_mb


def resumes(client: httpx.Client, revision: int) -> bool:
    """A watch resumes from an acknowledged revision."""
    query = {"watch": "true", "resourceVersion": str(revision), "timeoutSeconds": "1"}
    with client.stream("GET", PATH, params=query) as response:
        events: list[dict[str, Any]] = [json.loads(line) for line in response.iter_lines() if line]
    return response.status_code == 200 and all(event["type"] != "ERROR" for event in events)


def survive(folder: Path, rounds: int, seed: int, figures: Figures) -> int:
    """The number of writes acknowledged over all rounds."""
    chance = random.Random(seed)
    writers = [Writer(number, random.Random(seed * 100 + number)) for number in range(WRITERS)]
    kube = KubeProcess(folder).start()
    try:
        memory_mb = [kill_and_look(kube, writers, chance) for _ in range(rounds)]
        figures.memory_before_mb, figures.memory_after_mb = memory_mb[0], memory_mb[-1]
    finally:
        kube.kill()
        figures.requests = sum(one.figures.requests for one in writers)
        figures.errors = sum(len(one.refused) for one in writers)
        figures.worst_ms = max(one.figures.worst_ms for one in writers)
        figures.more = f"{rounds} kills"
    return sum(one.acknowledged for one in writers)


def test_acknowledged_writes_survive_kills(tmp_path: Path, figures: Figures) -> None:
    assert survive(tmp_path, rounds=6, seed=1, figures=figures) > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_acknowledged_writes_survive_two_hundred_kills(tmp_path: Path, figures: Figures) -> None:
    assert survive(tmp_path, rounds=200, seed=2, figures=figures) > 0
