"""Nodes, listed by what is known of them and cordoned several at once: what the database leaves out is what a reader of
all of them would."""

from __future__ import annotations

import pytest

from matrixresource.api import topology
from matrixresource.store.maintenance_domains import DomainRow
from matrixresource.store.tables import NodeRow
from tests.stack import Stack

pytestmark = pytest.mark.looptime

LOST, CORDONED = "sn0-c03-n2", ["sn0-c05-n0", "sn0-c05-n1", "sn1-c00-n0"]
TERMS = (
    *(f"{field}{sign}{value}" for field in ("agent", "health", "supernode") for sign in ("=", "!=")
      for value in ("Lost", "Connected", "Healthy", "sn1", "")),
    "state=Available", "state!=Available", "supernode=sn1 AND cabinet=sn1-c05", "agent=Lost AND supernode=sn0",
    'state!="Available" AND schedulable=false', "npus=8 AND state=Available", "unschedulableReason=", "role!=",
)  # fmt: skip


def matches(view: dict, term: str) -> bool:
    field, sign, value = term.partition("!=") if "!=" in term else term.partition("=")
    shown = view.get(field)
    text = str(shown).lower() if isinstance(shown, bool) else "" if shown is None else str(shown)
    return (text == value.strip('"')) == (sign == "=")


async def test_database_filters_match_filtering_in_memory(tmp_path):
    async with Stack(tmp_path) as stack:
        answer = await stack.http["resource"].put("/v1/supernodes/sn1", json={})
        assert answer.is_success, answer.text
        answer = await stack.http["resource"].post("/v1/node-cordons", json={"nodes": CORDONED, "by": "work"})
        assert answer.status_code == 200, answer.text
        stack.impair("gone", "node-down", LOST)

        async def lost() -> bool:
            return (await stack.get("resource", f"/v1/nodes/{LOST}")).json()["agent"] == "Lost"

        await stack.until(lost, "the node is lost", within_s=600)
        whole = (await stack.get("resource", "/v1/nodes?pageSize=1000")).json()["items"]
        for terms in TERMS:
            found = (await stack.http["resource"].get("/v1/nodes", params={"pageSize": 1000, "filter": terms})).json()
            expected = [each["name"] for each in whole if all(matches(each, term) for term in terms.split(" AND "))]
            assert [each["name"] for each in found["items"]] == expected, terms


async def test_views_are_built_only_for_matching_rows(tmp_path, monkeypatch):
    async with Stack(tmp_path) as stack:
        made, view = [], NodeRow.view
        monkeypatch.setattr(NodeRow, "view", lambda row: made.append(row.name) or view(row))
        found = (await stack.get("resource", "/v1/nodes?filter=agent!=Connected")).json()
        assert (found["items"], made) == ([], [])


async def test_domain_members_are_computed_only_on_request(tmp_path, monkeypatch):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3, placement={"policy": "spread"})
        await stack.active("one", 3)
        assert (await stack.http["resource"].post("/v1/domains/sn0-c03:close")).is_success
        whole = (await stack.get("resource", "/v1/domains")).json()["items"]
        assert [each["name"] for each in whole] == sorted(each["name"] for each in whole)
        assert {name for each in whole for name in each["allocations"]} == {"one"}
        for term in (
            "state=Closed",
            "state!=Closed",
            "level=supernode",
            "supernode=sn0",
            "level=cabinet AND state=Open",
        ):
            answer = await stack.http["resource"].get("/v1/domains", params={"filter": term})
            expected = [each for each in whole if all(matches(each, part) for part in term.split(" AND "))]
            assert answer.json()["items"] == expected, term
        made, view = [], DomainRow.view_of
        monkeypatch.setattr(DomainRow, "view_of", lambda row, names: made.append(row.name) or view(row, names))
        monkeypatch.setattr(topology, "allocations_by_domain", None)
        found = (await stack.get("resource", "/v1/domains?filter=state%3DDraining")).json()
        assert (found["items"], made) == ([], [])


async def test_batch_cordon_skips_unknown_nodes(tmp_path):
    async with Stack(tmp_path) as stack:
        asked = {"nodes": [*CORDONED, CORDONED[0]], "by": "work"}
        seen = await stack.http["resource"].post("/v1/node-cordons", params={"validateOnly": "true"}, json=asked)
        assert seen.json() == {"nodes": CORDONED[:2]}
        assert (await stack.get("resource", f"/v1/nodes/{CORDONED[0]}")).json()["cordonedBy"] == []
        seen = await stack.http["resource"].post("/v1/node-cordons", json=asked)
        assert seen.json() == {"nodes": CORDONED[:2]}, "sn1 does not exist"
        asked = {"cabinets": ["sn0-c01", "sn0-c99"], "nodes": ["sn0-c01-n2", "sn0-c10-n0"], "by": "racks"}
        seen = await stack.http["resource"].post("/v1/node-cordons", json=asked)
        assert seen.json() == {"nodes": [*(f"sn0-c01-n{at}" for at in range(4)), "sn0-c10-n0"]}
        for asked, field in (({"nodes": ["sn0-c99-n0"]}, "nodes"), ({"cabinets": ["sn0-c99"]}, "cabinets")):
            refused = await stack.http["resource"].post("/v1/node-cordons", json=asked)
            assert (refused.status_code, refused.json()["field"]) == (404, field), "nobody was cordoned"
        for name in CORDONED[:2]:
            shown = (await stack.get("resource", f"/v1/nodes/{name}")).json()
            assert (shown["cordonedBy"], shown["schedulable"]) == (["work"], False)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"nodes": []}, "nodes"),
        ({"nodes": [], "cabinets": []}, "nodes"),
        ({"cabinets": ["sn0"]}, "cabinets"),
        ({"nodes": ["sn0-x"]}, "nodes"),
        ({"nodes": ["sn0-c00-n0"], "by": "A b"}, "by"),
        ({}, "nodes"),
    ],
)
async def test_invalid_cordon_names_its_field(tmp_path, body, field):
    async with Stack(tmp_path) as stack:
        answer = await stack.http["resource"].post("/v1/node-cordons", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["field"].startswith(field)
        assert (await stack.get("resource", "/v1/nodes?filter=schedulable=false")).json()["items"] == []
