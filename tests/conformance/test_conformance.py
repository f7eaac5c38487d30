"""Every case on the embedded API; with `--servers both` also on the real one, and what the two saw compared.

Without the real control plane (no Go here, or not asked for) the embedded half runs alone, as part of `make test`.
"""

import pytest

from tests.conformance import cases  # noqa: F401  (importing registers them)
from tests.conformance.catalogue import CASES
from tests.conformance.differences import judge
from tests.conformance.runner import EMBEDDED, REAL, Bench
from tests.e2e.realkube.build import missing_parts

ALL = sorted(CASES)


@pytest.fixture
def real_wanted(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--servers", default="embedded") != "both":
        pytest.skip("on the embedded API alone; `make conformance` runs the real one too")
    if missing := missing_parts():
        pytest.fail(missing)


@pytest.mark.parametrize("name", ALL)
def test_embedded(bench: Bench, name: str) -> None:
    outcome = bench.outcome(EMBEDDED, name)
    judge(name).embedded(outcome)


class TestReal:
    pytestmark = pytest.mark.usefixtures("real_wanted")

    @pytest.mark.parametrize("name", ALL)
    def test_real(self, bench: Bench, name: str) -> None:
        outcome = bench.outcome(REAL, name)
        assert not outcome.failure, outcome.failure

    @pytest.mark.parametrize("name", ALL)
    def test_same(self, bench: Bench, name: str) -> None:
        judge(name).same(bench.outcome(EMBEDDED, name), bench.outcome(REAL, name))
