"""What stands in a command for a name is one name in the request, and an empty one is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import httpx
import pytest

from tests.services.matrixctl.inprocess import connect_matrixctl, run_matrixctl

FAULTS = {"items": [{"name": "one"}, {"name": "two"}]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every request that matrixctl makes, as method and path; each is answered with two faults."""
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.method} {request.url.raw_path.decode()}")
        return httpx.Response(200, json=FAULTS | {"name": "a", "state": "Open"})

    client = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://there")
    connect_matrixctl(monkeypatch, dict.fromkeys(("agents", "compute", "link", "resource"), client))
    return seen


@pytest.fixture
def ctl(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    return partial(run_matrixctl, capsys)


@pytest.mark.parametrize(
    "words",
    [
        ("fault", "clear", ""),
        ("get", "nodes", ""),
        ("describe", "nodes", "."),
        ("delete", "instances", ""),
        ("node", "quarantine", ""),
        ("drain", "delete", ".."),
        ("quota", "delete", ""),
        ("maintenance", "show", ""),
        ("scenario", "show", ""),
    ],
)
def test_what_would_mean_the_collection_is_refused(
    ctl: Callable[..., tuple[int, str, str]], asked: list[str], words: tuple[str, ...]
) -> None:
    code, _, err = ctl(*words)
    assert (code, "is not a valid name" in err) == (1, True), err
    assert not [each for each in asked if not each.startswith("GET /v1/nodes?")]


@pytest.mark.parametrize(
    ("words", "request_made"),
    [
        (("fault", "clear", "a?b"), "DELETE /v1/faults/a%3Fb"),
        (("domain", "open", "a?drain=true"), "POST /v1/domains/a%3Fdrain%3Dtrue:open"),
        (("maintenance", "abort", "a#b", "-o", "json"), "POST /v1/maintenances/a%23b:abort"),
        (("budget", "delete", "a:b"), "DELETE /v1/disruption-budgets/a%3Ab"),
    ],
)
def test_no_character_of_a_name_ends_it(
    ctl: Callable[..., tuple[int, str, str]], asked: list[str], words: tuple[str, ...], request_made: str
) -> None:
    ctl(*words)
    assert asked == [request_made]


def test_an_injected_fault_is_named_as_it_was_made(ctl: Callable[..., tuple[int, str, str]], asked: list[str]) -> None:
    code, out, _ = ctl("fault", "inject", "node-down", "sn0-c00-n0", "--name", "p/a")
    assert (code, asked) == (0, ["PUT /v1/faults/a?project=p"])
    assert out.startswith("fault a injected; clear it with `matrixctl fault clear a`")


@pytest.mark.parametrize(
    ("words", "with_project", "without"),
    [
        (("get", "instances"), 1, 0),
        (("describe", "nodes", "a"), 0, 2),
        (("get", "npus", "a"), 0, 1),
        (("get", "drains"), 0, 1),
        (("get", "operations"), 2, 1),
    ],
)
def test_a_project_is_named_where_something_is_a_projects(
    ctl: Callable[..., tuple[int, str, str]], asked: list[str], words: tuple[str, ...], with_project: int, without: int
) -> None:
    code, _, err = ctl(*words, "--project", "red")
    assert code == 0, err
    named = ["project=red" in each for each in asked]
    assert (named.count(True), named.count(False)) == (with_project, without), asked
