"""The servers the cases run on: the embedded API always, the real one with `--servers both` (`make conformance`)."""

from collections.abc import Iterator

import pytest

from tests.conformance.runner import EMBEDDED, REAL, Bench

SERVER_OF = {"test_embedded": EMBEDDED, "test_real": REAL}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--servers", choices=("embedded", "both"), default="embedded", help="run the cases on the real API too"
    )


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The servers, each started when it is first needed, the wanted cases already running on them."""
    wanted: dict[str, list[str]] = {EMBEDDED: [], REAL: []}
    for item in request.session.items:
        server = SERVER_OF.get(getattr(item, "originalname", ""))
        name = getattr(getattr(item, "callspec", None), "params", {}).get("name")
        if server and isinstance(name, str):  # an empty parameter set leaves one item with a placeholder
            wanted[server].append(name)
    with Bench() as found:
        for server, names in wanted.items():
            if names:
                found.begin(server, names)
        yield found
