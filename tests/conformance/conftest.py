"""The servers the cases run on: the embedded API always, the real one with `--servers both` (`make conformance`)."""

from collections.abc import Iterator

import pytest

from tests.conformance.runner import Bench


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--servers", choices=("embedded", "both"), default="embedded", help="run the cases on the real API too")


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Both servers, each started when it is first asked for."""
    with Bench() as found:
        yield found
