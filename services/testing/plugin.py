"""The package's pytest plugin, which pytest loads through its entry point.

    cloudmatrix       a whole stack in this process, in virtual time; for tests that are coroutines
    kubernetes        the embedded Kubernetes API alone, on a real port
    cloudmatrix_live  a stack of real processes, one for the session
    kubeconfig        the path of that stack's kubeconfig
    cloudmatrix_url   the URL of one of its processes: cloudmatrix_url("compute")

    @pytest.mark.cloudmatrix(seed=7, time_scale=1, snapshot="before.snapshot")

sets how `cloudmatrix` starts. No module of the emulator is imported before a test uses one of these fixtures.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from services.testing.cloudmatrix import CloudMatrix
    from services.testing.kubernetes import KubernetesApi
    from services.testing.live import LiveStack

MARKER = "cloudmatrix"
SETTINGS = ("seed", "time_scale", "snapshot")

try:
    import pytest_asyncio
except ImportError:  # only `cloudmatrix` needs it
    _async_fixture: Any = pytest.fixture
else:
    _async_fixture = pytest_asyncio.fixture


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cloudmatrix(seed, time_scale, snapshot): how the `cloudmatrix` fixture starts")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> None:
    """Mark a coroutine test that uses `cloudmatrix` for pytest-asyncio, whatever its mode."""
    if name.startswith("test") and inspect.iscoroutinefunction(obj) and MARKER in inspect.signature(obj).parameters:
        pytest.mark.asyncio(obj)


@_async_fixture
async def cloudmatrix(request: pytest.FixtureRequest) -> AsyncIterator[CloudMatrix]:
    """A supernode with its control plane and a Kubernetes API, in virtual time: `services/testing/cloudmatrix.py`."""
    from services.testing import validators
    from services.testing.cloudmatrix import CloudMatrix
    from services.testing.virtual_time import virtual_time

    validators.install()
    with virtual_time(asyncio.get_running_loop()):
        async with CloudMatrix(**_settings(request.node.get_closest_marker(MARKER))) as world:
            yield world


def _settings(marker: pytest.Mark | None) -> dict[str, Any]:
    given = dict(marker.kwargs) if marker is not None else {}
    if marker is not None and (marker.args or set(given) - set(SETTINGS)):
        raise pytest.UsageError(f"@pytest.mark.cloudmatrix takes only keyword arguments: {', '.join(SETTINGS)}")
    return given


@pytest.fixture
def kubernetes() -> Iterator[KubernetesApi]:
    """The embedded Kubernetes API alone: `.kubeconfig`, `.url`, `.client`, `.apply(...)`."""
    from services.testing.kubernetes import KubernetesApi

    with KubernetesApi() as api:
        yield api


@pytest.fixture(scope="session")
def cloudmatrix_live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    """A stack of real processes at 600 times wall-clock speed, started once and shared by the session's tests."""
    from services.testing.live import LiveStack

    with LiveStack(tmp_path_factory.mktemp("cloudmatrix") / "state") as stack:
        yield stack


@pytest.fixture
def kubeconfig(cloudmatrix_live: LiveStack) -> Path:
    """The path of the live stack's kubeconfig."""
    return cloudmatrix_live.kubeconfig


@pytest.fixture
def cloudmatrix_url(cloudmatrix_live: LiveStack) -> Callable[[str], str]:
    """The URL of one process of the live stack."""
    return cloudmatrix_live.url
