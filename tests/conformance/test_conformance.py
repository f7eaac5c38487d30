"""Every case on the embedded API; with `--servers both` also on the real one, and what the two saw compared.

Without the real control plane (no Go here, or not asked for) the embedded half runs alone, as part of `make test`, and
without the cases that run kubectl, which has end-to-end tests of its own.
"""

import pytest

from tests.conformance.catalogue import CASES
from tests.conformance.differences import judge
from tests.conformance.runner import EMBEDDED, REAL, Bench
from tests.e2e.realkube.build import missing_parts

ENOUGH = 250


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`name` is a case; what needs the real server has none unless that was asked for."""
    if "name" in metafunc.fixturenames:
        alone = metafunc.config.getoption("--servers", default="embedded") == "embedded"
        names = [] if alone and metafunc.function is not test_embedded else sorted(CASES)
        metafunc.parametrize("name", [name for name in names if not alone or CASES[name].topic != "kubectl"])


def test_embedded(bench: Bench, name: str) -> None:
    judge(name).embedded(bench.outcome(EMBEDDED, name))


@pytest.fixture(scope="session")
def real_parts() -> None:
    if missing := missing_parts():
        pytest.fail(missing)


def test_real(real_parts: None, bench: Bench, name: str) -> None:
    outcome = bench.outcome(REAL, name)
    assert not outcome.failure, outcome.failure


def test_same(real_parts: None, bench: Bench, name: str) -> None:
    judge(name).same(bench.outcome(EMBEDDED, name), bench.outcome(REAL, name))


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= ENOUGH
