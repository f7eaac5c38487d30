"""The scenarios that come with the project: each says why, can be previewed, and passes on a stack in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from matrixcompute.scenarios.library import library
from matrixcompute.scenarios.preflight import preview
from matrixcompute.scenarios.runner import ScenarioRunner
from matrixcompute.scenarios.service_clients import ServiceClients
from matrixresource.agent.fault_catalogue import CATALOGUE
from tests.small_stack import SmallStack

OF_PROCESSES = [
    name for name, each in library().items() if any(CATALOGUE[action.fault].is_process_fault for action in each.method)
]
OF_HARDWARE = sorted(set(library()) - set(OF_PROCESSES))
QUICK = ["free-node-lacks-an-npu", "hbm-multi-bit-error", "repeat-offender", "rdma-nic-dies"]


class NoProcesses:
    """Services that can be named, and are never struck."""

    async def services(self) -> Sequence[str]:
        return ["compute", "resource"]

    async def check(self, kind: str, service: str, parameters: Mapping[str, str]) -> None:
        return

    async def inject(self, name: str, kind: str, service: str, parameters: Mapping[str, str]) -> None:
        raise AssertionError("a preview strikes nobody")

    async def clear(self, name: str) -> None:
        return

    async def injected(self) -> Sequence[str]:
        return []

    async def observe(self, service: str) -> dict[str, Any]:
        return {}


def test_library_scenarios_have_explanation_and_source() -> None:
    assert len(library()) >= 20
    for name, each in library().items():
        assert len(each.explanation) > 80, name
        assert len(each.source) > 20, name


@pytest.mark.looptime
async def test_library_scenarios_can_be_previewed(tmp_path: Path) -> None:
    async with SmallStack(tmp_path) as stack:
        for name, each in library().items():
            shown = await preview(name, each, ServiceClients(stack.http, NoProcesses()))
            assert all(shown.targets.values()), name
        assert await stack.compute.instances() == []
        assert stack.fleet is not None
        assert not stack.fleet.faults


async def passes(folder: Path, name: str) -> None:
    async with SmallStack(folder) as stack:
        report = await ScenarioRunner(
            name, library()[name], ServiceClients(stack.http), stack.clock, "scenario-test-"
        ).run()
        assert report.verdict == "PASS", report.reason
        assert stack.fleet is not None
        assert not stack.fleet.faults


@pytest.mark.looptime
@pytest.mark.parametrize("name", QUICK)
async def test_quick_library_scenarios_pass(tmp_path: Path, name: str) -> None:
    await passes(tmp_path, name)


@pytest.mark.soak
@pytest.mark.looptime
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", OF_HARDWARE)
async def test_hardware_library_scenarios_pass(tmp_path: Path, name: str) -> None:
    await passes(tmp_path, name)
