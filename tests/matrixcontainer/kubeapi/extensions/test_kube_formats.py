"""Names, quantities and formats of strings: what is one from its first character to its last, and what is none."""

import pytest

from matrixcontainer.kubeapi.meta.names import label_1035_error, label_error, subdomain_error
from matrixcontainer.kubeapi.meta.qualified_names import qualified_name_errors
from matrixcontainer.kubeapi.meta.quantities import InvalidQuantity, parse, parse_int
from matrixcontainer.kubeapi.schema.formats import FORMATS
from tests.matrixcontainer.kubeapi.api_session import WIDGETS, ApiSession, a_widget


@pytest.mark.parametrize("check", [label_error, label_1035_error, subdomain_error])
def test_no_name_ends_in_a_newline(check) -> None:
    assert check("a") == ""
    assert check("a\n") != ""


def test_no_prefix_and_no_quantity_ends_in_a_newline() -> None:
    assert qualified_name_errors("example.test\n/a")
    assert parse_int("5\n", default=7) == 7
    for text in ("1\n", "1Ki\n", "1e3\n"):
        with pytest.raises(InvalidQuantity):
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


async def test_an_object_whose_name_ends_in_a_newline_is_refused(widgets: ApiSession) -> None:
    reported = await widgets.post(WIDGETS, a_widget("one\n"))
    assert (reported.code, list(reported.causes)) == (422, ["metadata.name"])
    configured = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key\n": "v"}}
    assert (await widgets.post("/api/v1/namespaces/default/configmaps", configured)).code == 422


def test_duration_matching_takes_linear_time() -> None:
    check = FORMATS["duration"]
    for text in ("1" * 1_000_000, "1" + " " * 1_000_000, "1 " * 500_000, "1h" * 100_000 + "x"):
        assert check(f"{text}?") is ("1h" in text)  # quadratic: a day
    for text in ("12 days", "5d", "x 3 min", "007 weeks"):
        assert check(text)
    for text in ("12 apples", "d", "1"):
        assert not check(text)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("2026-02-28T23:59:59.5+01:00", True),
        ("2024-02-29t00:00:00z", True),
        ("2026-02-31T00:00:00Z", False),
        ("2026-02-29T00:00:00Z", False),
        ("2026-01-01T00:00:60Z", False),
        ("２０２６-01-01T00:00:00Z", False),
    ],
)
def test_date_time_must_exist(text: str, is_one: bool) -> None:
    assert FORMATS["datetime"](text) is is_one


@pytest.mark.parametrize("zone", ["-23:59", "+23:59"])
async def test_out_of_range_time_is_a_client_error(widgets: ApiSession, zone: str) -> None:
    await widgets.post(WIDGETS, a_widget())
    for moment in (f"9999-12-31T23:59:59{zone}", f"0001-01-01T00:00:00{zone}"):
        reported = await widgets.patch(f"{WIDGETS}/one", {"metadata": {"deletionTimestamp": moment}})
        assert reported.code in (200, 422)
