from collections.abc import AsyncIterator

import pytest

from tests.matrixcontainer.kubeapi.api_session import ApiSession, a_crd, a_server


@pytest.fixture
async def session() -> AsyncIterator[ApiSession]:
    """A running API."""
    async with a_server() as found:
        yield found


@pytest.fixture
async def widgets(session: ApiSession) -> ApiSession:
    """A running API that serves widgets."""
    await session.define(a_crd())
    return session
