"""docker-compose.yml says the same as the catalogue of processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.catalogue import BY_NAME, PROCESSES, Process
from services.matrixctl.demo.run import DEMOS

ROOT = Path(__file__).resolve().parents[2]
NOT_PROCESSES = {"prepare", "postgres"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    current: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return current


def test_every_process_is_one_container(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) - NOT_PROCESSES - set(DEMOS) == set(BY_NAME)
    assert "version" not in compose


@pytest.mark.parametrize("story", DEMOS)
def test_a_story_is_a_profile_that_starts_once_everything_is_healthy(compose: dict[str, Any], story: str) -> None:
    service = compose["services"][story]
    assert (service["profiles"], service["command"], service["restart"]) == ([story], [story], "no")
    assert set(service["depends_on"]) == set(BY_NAME)
    assert {each["condition"] for each in service["depends_on"].values()} == {"service_healthy"}


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
    assert not {"CLOUDMATRIX_DATABASE", "CLOUDMATRIX_TOKEN"} & set(settings), "what is secret is in its folder"
    state = "${CLOUDMATRIX_STATE:-./.state/compose}"
    assert service["volumes"] == [f"{state}/processes/{process.name}:/state", f"{state}/shared:/shared:ro"]
    assert service["user"] == "${CLOUDMATRIX_USER:-10001:10001}"
    waits = service["depends_on"]
    assert waits["prepare"]["condition"] == "service_completed_successfully"
    assert ("postgres" in waits) == process.has_database
    assert service["healthcheck"]["test"][-1] == f"{process.scheme}://127.0.0.1:{process.port}"


def test_the_endpoint_is_shown_where_its_port_is_published(compose: dict[str, Any]) -> None:
    settings = {name: compose["services"][name]["environment"] for name in ("infer", "operator")}
    published = f"http://127.0.0.1:{BY_NAME['infer'].port}"
    assert settings["infer"]["CLOUDMATRIX_PUBLIC_URL"] == published
    assert settings["operator"]["CLOUDMATRIX_INFER_PUBLIC_URL"] == published


def test_nothing_secret_is_written_in_the_file(compose: dict[str, Any]) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    assert not re.search(r"(?i)password:|token:|://[^/\s]*:[^/\s]*@", text)
    assert compose["services"]["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"] == "/etc/cloudmatrix/password"


def test_an_image_alone_is_not_root() -> None:
    assert re.search(r"^USER 10001:10001$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
