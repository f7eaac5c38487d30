"""Names, quantities and formats of strings: what is one from its first character to its last, and what is none."""

import pytest

from matrixcontainer.kubeapi.meta.names import is_label, is_label_1035, is_subdomain
from matrixcontainer.kubeapi.meta.qualified_names import qualified_mistakes
from matrixcontainer.kubeapi.meta.quantities import NoQuantity, parse, whole_number
from matrixcontainer.kubeapi.schema.formats import FORMATS
from tests.matrixcontainer.kubeapi.talk import WIDGETS, Talk, a_widget


@pytest.mark.parametrize("check", [is_label, is_label_1035, is_subdomain])
def test_no_name_ends_in_a_newline(check) -> None:
    assert check("a") == ""
    assert check("a\n") != ""


def test_no_prefix_and_no_quantity_ends_in_a_newline() -> None:
    assert qualified_mistakes("example.test\n/a")
    assert whole_number("5\n", default=7) == 7
    for text in ("1\n", "1Ki\n", "1e3\n"):
        with pytest.raises(NoQuantity):
            parse(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("datetime", "2026-01-02T03:04:05Z"),
        ("hostname", "a.b"),
        ("email", "a@b"),
        ("mac", "01:23:45:67:89:ab"),
    ],
)
def test_no_format_takes_a_newline_at_the_end(name: str, text: str) -> None:
    assert FORMATS[name](text)
    assert not FORMATS[name](f"{text}\n")


async def test_an_object_whose_name_ends_in_a_newline_is_refused(widgets: Talk) -> None:
    reported = await widgets.post(WIDGETS, a_widget("one\n"))
    assert (reported.code, list(reported.causes)) == (422, ["metadata.name"])
    configured = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key\n": "v"}}
    assert (await widgets.post("/api/v1/namespaces/default/configmaps", configured)).code == 422


def test_a_duration_is_looked_for_in_time_linear_in_the_text() -> None:
    check = FORMATS["duration"]
    for text in ("1" * 1_000_000, "1" + " " * 1_000_000, "1 " * 500_000, "1h" * 100_000 + "x"):
        assert check(f"{text}?") is ("1h" in text)  # quadratic: a day
    for text in ("12 days", "5d", "x 3 min", "007 weeks"):
        assert check(text)
    for text in ("12 apples", "d", "1"):
        assert not check(text)
