"""docker-compose.yml says the same as the catalogue of processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.catalogue import BY_NAME, PROCESSES, Process

ROOT = Path(__file__).resolve().parents[2]
NOT_PROCESSES = {"prepare", "postgres"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    current: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return current


def test_every_process_is_one_container(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) - NOT_PROCESSES == set(BY_NAME)
    assert "version" not in compose


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_a_container_has_its_process_port_database_and_neighbours(compose: dict[str, Any], process: Process) -> None:
    service = compose["services"][process.name]
    settings = service["environment"]
    assert service["command"] == [process.name]
    assert service["ports"] == [f"127.0.0.1:{process.port}:{process.port}"], "published on loopback only"
    assert settings["CLOUDMATRIX_PORT"] == str(process.port)
    urls = {key: value for key, value in settings.items() if key.endswith("_URL") and "PUBLIC" not in key}
    assert urls == {
        f"CLOUDMATRIX_{called.upper()}_URL": f"http://{called}:{BY_NAME[called].port}"
        for called in process.calls
        if called != "kube"
    }
    database = settings.get("CLOUDMATRIX_DATABASE", "")
    assert database.endswith(f"@postgres/{process.name}") == process.has_database
    waits = service["depends_on"]
    assert waits["prepare"]["condition"] == "service_completed_successfully"
    assert ("postgres" in waits) == process.has_database
    assert service["healthcheck"]["test"][-1] == f"{process.scheme}://127.0.0.1:{process.port}"


def test_every_database_is_made() -> None:
    made = re.findall(r"CREATE DATABASE (\w+);", (ROOT / "docker" / "databases.sql").read_text())
    assert made == [process.name for process in PROCESSES if process.has_database]
