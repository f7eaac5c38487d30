"""Applied configurations that list an object or a list as empty: it stays, whatever was in it before."""

from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.api_session import WIDGETS, ApiSession, a_widget

ONE = f"{WIDGETS}/one"


@pytest.mark.parametrize(
    ("field", "full", "empty"),
    [("labels", {"a": "1"}, {}), ("ports", [{"name": "a", "port": 1}], []), ("tags", ["x"], [])],
)
async def test_field_applied_as_empty_is_kept(widgets: ApiSession, field: str, full: Any, empty: Any) -> None:
    await widgets.apply(ONE, a_widget(spec={"size": 3, field: full}), "me")
    first = (await widgets.apply(ONE, a_widget(spec={"size": 3, field: empty}), "me")).body
    assert first["spec"][field] == empty
    again = (await widgets.apply(ONE, a_widget(spec={"size": 3, field: empty}), "me")).body
    assert again == first


async def test_unapplied_map_is_removed_with_its_last_member(widgets: ApiSession) -> None:
    await widgets.apply(ONE, a_widget(spec={"size": 3, "labels": {"a": "1"}, "tags": ["x"]}), "me")
    left = (await widgets.apply(ONE, a_widget(spec={"size": 3}), "me")).body
    assert left["spec"] == {"size": 3, "color": "red"}
