"""docker-compose.yml on a real engine: it builds, starts on PostgreSQL, answers on its ports, and both stories hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from services.catalogue import PROCESSES
from services.matrixctl.demo import compose as demo
from services.matrixctl.demo.run import DEMOS
from tests.e2e.compose.engine import engine, images, run, wheels

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def command() -> Iterator[list[str]]:
    with engine():
        found = demo.compose_command()
        if found is None:
            pytest.skip("there is an engine, and no Compose: neither `docker compose` nor docker-compose")
        yield found


def test_compose_reads_the_file(command: list[str]) -> None:
    current = yaml.safe_load(run(*command, "config"))
    assert {process.name for process in PROCESSES} < set(current["services"])


@pytest.mark.parametrize("story", sorted(DEMOS))
def test_a_story_holds_on_containers(
    story: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in images().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")
    monkeypatch.setenv("COMPOSE_DOCKER_CLI_BUILD", "0")
    wheels()
    code = demo.run_demo(command, DEMOS[story], tmp_path / "state")
    seen = capfd.readouterr()
    assert code == 0, seen.out + seen.err[-6000:]
    with capfd.disabled():
        print("\n".join(line for line in seen.out.splitlines() if "ready in" in line))
    assert "every step succeeded" in seen.out
    assert run(*command, "ps", "-q").strip() == "", "a container is left"
