"""What users of the stack ask: every action is one or a few REST requests, and what was acknowledged is remembered."""

from __future__ import annotations

from typing import Any

from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import key_of
from tests.matrixresource.topology.three_cabinets import NODES
from tests.simulation.drawing import booleans, fixed_dictionaries, integers, just, lists, sampled_from
from tests.simulation.rest_actions import ANY, action, pick
from tests.simulation.rest_life import Answer, Life

INSTANCES, ALLOCATIONS, RESERVATIONS = ([f"{letter}{number}" for number in range(3)] for letter in "iar")
PROJECTS = sampled_from(["default", "default", "red"])
PLACEMENTS = sampled_from(
    [
        {},
        {"policy": "spread"},
        {"policy": "pack", "required": True},
        {"policy": "spread", "maxPerDomain": 1, "required": True},
        {"blocks": [{"nodes": 2, "level": "cabinet"}]},
    ]
)
NETWORKS = sampled_from(
    [{}, {}, {"ub": {"qosClass": "Guaranteed", "floorGbpsPerNpu": 150.0}}, {"rdma": {"floorGbpsPerNpu": 25.0}}]
)
SIZES = sampled_from(
    [
        {"npus": 0.5},
        {"npus": 3, "cpus": 1},
        {"nodes": 1},
        {"nodes": 2, "spares": 1},
        {"nodes": 5},
        {"nodes": 2, "npusPerNode": 4},
        {"cpus": 9, "memoryGib": 3000},
    ]
)
KEPT = 5
"""A priority that nobody here preempts."""

# -- instances ---------------------------------------------------------------------------------------------------------


@action(
    name=sampled_from(INSTANCES),
    project=PROJECTS,
    nodes=integers(1, 6),
    more=fixed_dictionaries(
        {},
        optional={
            "spares": integers(0, 2),
            "minNodes": integers(1, 3),
            "placement": PLACEMENTS,
            "network": NETWORKS,
            "priority": integers(0, 2),
            "preemption": just("LowerPriority"),
            "leaseS": sampled_from([100, 2000]),
        },
    ),
    dry=sampled_from([None, None, None, "true"]),
)
async def ensure_instance(life: Life, name: str, project: str, nodes: int, more: Any, dry: str | None) -> None:
    body = {"nodes": nodes, "project": project, **more}
    answer = await life.ask("compute", "PUT", f"/v1/instances/{name}", body, validateOnly=dry)
    if dry is None:
        remember_instance(life, answer, key_of(project, name))


def remember_instance(life: Life, answer: Answer, key: str) -> None:
    if answer.ok and "leaseS" not in answer.document:
        life.wrote(
            answer,
            "instances",
            key,
            {each: answer.document.get(each) for each in ("nodes", "minNodes", "spares", "placement", "priority")},
        )
    else:
        life.forget(answer, "instances", key)


@action(which=ANY, nodes=integers(1, 6), old=booleans(), leaving=lists(sampled_from(NODES), max_size=1))
async def resize_instance(life: Life, which: int, nodes: int, old: bool, leaving: list[str]) -> None:
    project, name = pick(life, "instances", which)
    headers = {"If-Match": '"0"'} if old else {}
    path = f"/v1/instances/{name}:resize"
    answer = await life.ask(
        "compute", "POST", path, headers=headers, project=project, nodes=nodes, leaving=leaving or None
    )
    assert not (old and answer.ok), "a change to what has been changed since was taken"
    remember_instance(life, answer, key_of(project, name))


@action(which=ANY, placement=PLACEMENTS)
async def move_instance(life: Life, which: int, placement: Any) -> None:
    project, name = pick(life, "instances", which)
    answer = await life.ask("compute", "POST", f"/v1/instances/{name}:move", placement, project=project)
    remember_instance(life, answer, key_of(project, name))


@action(which=ANY)
async def delete_instance(life: Life, which: int) -> None:
    project, name = pick(life, "instances", which)
    answer = await life.ask("compute", "DELETE", f"/v1/instances/{name}", project=project)
    life.wrote(answer, "instances", key_of(project, name), None)


@action(which=ANY, lease_s=sampled_from([200, 5000]))
async def renew_instance(life: Life, which: int, lease_s: float) -> None:
    project, name = pick(life, "instances", which)
    await life.ask("compute", "POST", f"/v1/instances/{name}:renew", {"leaseS": lease_s}, project=project)


@action(which=ANY)
async def cancel_operation(life: Life, which: int) -> None:
    """Back to the shape that was active last; which that is, is not the caller's to know."""
    going = [each for each in life.lists["operations"] if not each["done"]] or life.lists["operations"]
    if going:
        operation = going[which % len(going)]
        path, project = f"/v1/operations/{operation['name']}:cancel", operation["project"]
        answer = await life.ask("compute", "POST", path, {}, project=project)
        key = key_of(project, operation["target"])
        if (answer.ok or answer.unknown) and life.written.of.get("instances", {}).get(key) is not None:
            life.written.wrote("instances", key, {})


# -- allocations -------------------------------------------------------------------------------------------------------


@action(
    name=sampled_from(ALLOCATIONS),
    project=PROJECTS,
    size=SIZES,
    more=fixed_dictionaries(
        {},
        optional={
            "leaseS": sampled_from([60, 1000]),
            "priority": just(0),
            "preemption": just("LowerPriority"),
            "placement": PLACEMENTS,
            "excludeNodes": lists(sampled_from(NODES), min_size=1, max_size=3),
            "reservation": sampled_from(RESERVATIONS),
        },
    ),
    bound=booleans(),
)
async def ensure_allocation(life: Life, name: str, project: str, size: Any, more: Any, bound: bool) -> None:
    body = {"project": project, "priority": KEPT, **size, **more}
    answer = await life.ask("resource", "PUT", f"/v1/allocations/{name}", body)
    key = key_of(project, name)
    if body.get("leaseS") or body["priority"] < KEPT:
        life.forget(answer, "allocations", key)
    else:
        shown = {each: answer.document.get(each) for each in ("npus", "nodes", "spares", "cpus", "memoryGib")}
        life.wrote(answer, "allocations", key, shown)
    if bound and answer.ok:
        await life.ask("resource", "PUT", f"/v1/allocations/{name}/binding", project=project)


@action(which=ANY)
async def release_allocation(life: Life, which: int) -> None:
    """Anybody's, an instance's too."""
    project, name = pick(life, "allocations", which)
    answer = await life.ask("resource", "DELETE", f"/v1/allocations/{name}", project=project)
    key = key_of(project, name)
    if name in ALLOCATIONS:
        life.wrote(answer, "allocations", key, None)


@action(which=ANY, member=ANY)
async def replace_member(life: Life, which: int, member: int) -> None:
    project, name = pick(life, "allocations", which)
    members = [
        m["node"]
        for each in life.lists["allocations"]
        if (each["project"], each["name"]) == (project, name)
        for m in each["members"]
    ]
    if members:
        body = {"node": members[member % len(members)]}
        await life.ask("resource", "POST", f"/v1/allocations/{name}:replace", body, project=project)


@action(which=ANY, member=ANY, to=sampled_from(NODES), end=sampled_from(["keep", "back", "over"]))
async def relocate_member(life: Life, which: int, member: int, to: str, end: str) -> None:
    project, name = pick(life, "allocations", which)
    shown = [each for each in life.lists["allocations"] if (each["project"], each["name"]) == (project, name)]
    if not shown or name not in ALLOCATIONS:
        return
    members = shown[0]["members"]
    body = {"node": members[member % len(members)]["node"], "to": to}
    await life.ask("resource", "POST", f"/v1/allocations/{name}:relocate", body, project=project)
    if end == "back":
        await life.ask("resource", "DELETE", f"/v1/allocations/{name}/move", project=project)


@action(which=ANY, lease_s=sampled_from([200, 5000]))
async def renew_allocation(life: Life, which: int, lease_s: float) -> None:
    project, name = pick(life, "allocations", which)
    answer = await life.ask("resource", "POST", f"/v1/allocations/{name}:renew", {"leaseS": lease_s}, project=project)
    life.forget(answer, "allocations", key_of(project, name))


# -- reservations, quotas, what is closed ------------------------------------------------------------------------------


@action(
    name=sampled_from(RESERVATIONS),
    project=PROJECTS,
    size=SIZES,
    after_s=sampled_from([30, 300, 5000]),
    lasts_s=sampled_from([100, 3000]),
)
async def ensure_reservation(life: Life, name: str, project: str, size: Any, after_s: float, lasts_s: float) -> None:
    starts = timestamp(life.stack.clock.now() + after_s)
    body = {"project": project, "startsAt": starts, "durationS": lasts_s, **size}
    await life.ask("resource", "PUT", f"/v1/reservations/{name}", body)


@action(which=ANY)
async def delete_reservation(life: Life, which: int) -> None:
    project, name = pick(life, "reservations", which)
    await life.ask("resource", "DELETE", f"/v1/reservations/{name}", project=project)


@action(project=sampled_from(["default", "red"]), npus=sampled_from([None, 8, 40]))
async def ensure_quota(life: Life, project: str, npus: int | None) -> None:
    if npus is None:
        answer = await life.ask("resource", "DELETE", f"/v1/quotas/{project}")
        life.forget(answer, "quotas", key_of(project, project))
    else:
        answer = await life.ask("resource", "PUT", f"/v1/quotas/{project}", {"npus": npus})
        life.wrote(answer, "quotas", key_of(project, project), {"npus": npus})


@action(node=sampled_from(NODES), verb=sampled_from(["cordon", "uncordon"]), by=sampled_from(["ann", "bob"]))
async def cordon(life: Life, node: str, verb: str, by: str) -> None:
    await life.ask("resource", "POST", f"/v1/nodes/{node}:{verb}", by=by)


@action(
    cabinet=sampled_from(["sn0-c00", "sn0-c02"]),
    verb=sampled_from(["close", "open"]),
    drain=sampled_from([None, "true"]),
)
async def close_or_open(life: Life, cabinet: str, verb: str, drain: str | None) -> None:
    await life.ask("resource", "POST", f"/v1/domains/{cabinet}:{verb}", {}, drain=drain if verb == "close" else None)


@action(key=sampled_from(["k1", "k2"]), nodes=integers(2, 4), approve=booleans())
async def make_room(life: Life, key: str, nodes: int, approve: bool) -> None:
    """Asked twice under one key, one plan is made."""
    body, headers = {"nodes": nodes}, {"Idempotency-Key": f"{key}-{nodes}"}
    first, again = [await life.ask("resource", "POST", "/v1/defragmentations", body, headers=headers) for _ in range(2)]
    if first.ok and again.ok:
        assert first.document["name"] == again.document["name"], "asked twice under one key, two were made"
        if approve:
            await life.ask("resource", "POST", f"/v1/defragmentations/{first.document['name']}:approve", {})


# -- slices ------------------------------------------------------------------------------------------------------------


@action(which=ANY)
async def withdraw_slice(life: Life, which: int) -> None:
    """Under an instance that uses it."""
    project, name = pick(life, "slices", which)
    await life.ask("link", "DELETE", f"/v1/slices/{name}", project=project)


@action(
    name=sampled_from(["s0", "s1"]),
    which=ANY,
    owner=ANY,
    plane=sampled_from(["ub", "rdma", "vpc"]),
    floor=sampled_from([0.0, 10.0, 30.0]),
)
async def ensure_slice(life: Life, name: str, which: int, owner: int, plane: str, floor: float) -> None:
    """Of an allocation of one's own, beside an instance or beside none."""
    shown = life.lists["allocations"]
    if not shown:
        return
    allocation = shown[which % len(shown)]
    project, instance = pick(life, "instances", owner)
    body = {
        "allocation": f"{allocation['project']}/{allocation['name']}",
        "instance": f"{project}/{instance}",
        "plane": plane,
        "members": sorted({member["node"] for member in allocation["members"]}),
        "qosClass": "Burstable",
        "floorGbpsPerNpu": floor,
        "project": allocation["project"],
    }
    if body["members"]:
        answer = await life.ask("link", "PUT", f"/v1/slices/{name}", body)
        if answer.ok:
            await life.ask("link", "POST", f"/v1/slices/{name}:program", {}, project=allocation["project"])


# -- what nobody should ask --------------------------------------------------------------------------------------------

BAD: list[tuple[str, str, str, Any, int]] = [
    ("compute", "PUT", "/v1/instances/i0", {"nodes": 0}, 422),
    ("compute", "PUT", "/v1/instances/i0", {"nodes": 2, "colour": "red"}, 422),
    ("compute", "PUT", "/v1/instances/I0", {"nodes": 2}, 422),
    ("compute", "POST", "/v1/instances/nobody:retry", {}, 404),
    ("resource", "PUT", "/v1/allocations/a0", {"nodes": 1, "npus": 3}, 422),
    ("resource", "PUT", "/v1/allocations/a0", [], 422),
    ("resource", "DELETE", "/v1/allocations/nobody", None, 404),
    ("resource", "PUT", "/v1/reservations/r0", {"nodes": 1, "startsAt": "now", "durationS": 5}, 422),
    ("resource", "POST", "/v1/nodes/sn0-c99-n0:cordon", None, 404),
    ("link", "PUT", "/v1/slices/s0", {"plane": "ub"}, 422),
    ("link", "DELETE", "/v1/slices/nobody", None, 404),
]


@action(bad=sampled_from(BAD))
async def ask_nonsense(life: Life, bad: tuple[str, str, str, Any, int]) -> None:
    service, method, path, body, status = bad
    answer = await life.ask(service, method, path, body)
    assert answer.unknown or answer.status == status, f"{method} {path} {body}: {answer}"
