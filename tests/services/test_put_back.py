"""What `get NOUN NAME -o yaml` printed can be put back: for every kind that can be put, and nothing comes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from matrixcommon.model.errors import InvalidField
from services.matrixctl.commands.put_request import request_from_view
from services.matrixctl.explain.catalogue import declared_kind
from services.matrixctl.output.resource_kinds import LISTED_KINDS, find_kind
from tests.services.every_route import NAMES
from tests.services.furnished import MARK, furnished_stack

CAN_BE_PUT = [
    noun for noun in LISTED_KINDS if declared_kind(noun).request is not None and "PUT" in declared_kind(noun).verbs
]
PARAMS = {"project": MARK}


@pytest.mark.timeout(400)
@pytest.mark.looptime
async def test_what_get_printed_of_any_kind_goes_back_and_changes_nothing(tmp_path):
    wrong, tried = [], []
    async with furnished_stack(tmp_path) as (stack, _):
        for noun in CAN_BE_PUT:
            path = f"{noun.path}/{NAMES.get(noun.collection or noun.name, 'none')}"
            http, own = stack.http[noun.service], declared_kind(noun).scope.name == "PROJECT"
            params = PARAMS if own else {}
            shown = await http.get(path, params=params)
            if not shown.is_success:
                continue
            parts = {part: (await http.get(path + part, params=params)).json() for part in ("", noun.content)}
            body = request_from_view(noun, json.loads(shown.text), parts.__getitem__)
            etag = shown.json()["etag"]  # none of what is kept by a name alone
            answer = await http.put(path, json=body, params=params, headers={"If-Match": etag} if etag else {})
            tried.append(noun.name)
            before, after = ({**each.json(), **dict.fromkeys(STAMPS)} for each in (shown, answer))
            if not answer.is_success or before != after:
                wrong.append((noun.name, answer.status_code, differing(before, after) or answer.text))
    assert not wrong
    assert set(tried) >= {"allocations", "reservations", "reports", "instances", "slices", "deployments", "quotas"}


STAMPS = ("updatedAt", "etag", "generation")


def differing(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (before.get(name), after.get(name)) for name in before | after if before.get(name) != after.get(name)}


def test_what_follows_from_the_request_is_not_changed_beside_it():
    view = {"name": "a", "etag": '"1"', "nodes": 3, "npus": 24, "request": {"nodes": 3}, "labels": {"a": "b"}}
    allocations = find_kind("allocation")
    assert request_from_view(allocations, view, lambda part: view) == {"nodes": 3, "labels": {"a": "b"}}
    changed = view | {"request": {"nodes": 4}}
    assert request_from_view(allocations, changed, lambda part: view) == {"nodes": 4, "labels": {"a": "b"}}
    with pytest.raises(InvalidField, match=r"change `request\.nodes`"):
        request_from_view(allocations, view | {"nodes": 4}, lambda part: view)
