import pytest

from tests.matrixlink.fleet import LinkStack


@pytest.fixture
def stack(tmp_path):
    return LinkStack(tmp_path)
