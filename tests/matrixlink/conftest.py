import pytest

from tests.matrixlink.fleet import Stack


@pytest.fixture
def stack(tmp_path):
    return Stack(tmp_path)
