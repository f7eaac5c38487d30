from collections.abc import AsyncIterator

import pytest

from tests.matrixcontainer.kubeapi.talk import Talk, a_crd, a_server


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    """A running API."""
    async with a_server() as found:
        yield found


@pytest.fixture
async def widgets(talk: Talk) -> Talk:
    """A running API that serves widgets."""
    await talk.define(a_crd())
    return talk
