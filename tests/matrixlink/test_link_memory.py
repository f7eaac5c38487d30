"""What MatrixLink keeps in memory is of what there is now."""

import gc

from matrixcommon.api.client import list_all
from matrixlink.contract.inventory import LinkView
from tests.matrixlink.fleet import NODES


def dicts_in(memory):
    return [kept for kept in vars(memory).values() if isinstance(kept, dict)]


async def ten_minutes(stack):
    stack.passes(601)
    await stack.app.state.watchers["departed"].step()


async def test_memory_of_reports_is_released_with_slices_and_supernodes(stack):
    """However many slices come and go, and supernodes with them: no more is remembered than what there is."""
    reports = next(hook for hook in stack.remembering() if hasattr(hook, "_programs"))
    for number in range(5):
        await stack.active(f"s{number}-ub")
        assert {slice for known in reports._programs.values() for slice in known} == {f"s{number}-ub"}
        await stack.client.withdraw(f"s{number}-ub")
        await stack.settle()
    assert not any(reports._programs.values())
    report = stack.agents[NODES[0]].report().wire()
    node = "sn3-c00-n0"
    answer = await stack.http.post("/v1/link-reports", json={"reports": [report | {"node": node}]})
    assert answer.json()["answers"][0]["accepted"]
    assert any(node in kept for memory in stack.remembering() for kept in dicts_in(memory))
    reports._programs[node] = {}  # as after the last slice there has gone
    await ten_minutes(stack)
    for memory in stack.remembering():
        assert not any(node in kept for kept in dicts_in(memory)), memory


async def test_forwarding_tables_exist_only_for_present_supernodes(stack):
    async def supernodes():
        tables = await list_all(stack.http, "/v1/forwarding-tables")
        return {table["name"].partition("-")[0] for table in tables}

    assert await supernodes() == {"sn0"}
    report = stack.agents[NODES[0]].report().wire() | {"node": "sn3-c00-n0"}
    await stack.http.post("/v1/link-reports", json={"reports": [report]})
    assert await supernodes() == {"sn0", "sn3"}
    await ten_minutes(stack)
    assert await supernodes() == {"sn0"}


async def test_forgotten_slice_names_never_reuse_a_generation(stack):
    """Agents refuse a slice that is older than one they have heard of under its name."""
    store = stack.slice_controller().store
    for turn in range(3):
        for number in range(4 if turn == 0 else 2):
            await stack.active(f"s{number}-ub")
            await stack.client.withdraw(f"s{number}-ub")
            await stack.settle()
    with store.transaction() as session:
        known = {f"s{number}-ub": store.first_generation(session, f"s{number}-ub") for number in range(4)}
        fresh = store.first_generation(session, "never-ub")
        assert fresh == 1
        assert store.forget_generations(session, most=1) == 3
        assert store.forget_generations(session, most=1) == 0
        after = {name: store.first_generation(session, name) for name in known}
    assert all(after[name] >= known[name] for name in known), (known, after)
    await stack.active("s3-ub")


async def test_recovered_links_keep_no_view_in_memory(stack):
    """Their rows stay for as long as the supernode does, so that every one of thirteen thousand links may have one."""
    stack.hardware[NODES[0]].ports.update({f"ub-p0-k{chip:02d}": 0.5 for chip in range(16)})
    await stack.settle()
    controller = stack.slice_controller()
    with controller.store.reading() as session:
        assert len(controller.store.links(session)) == 16
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, LinkView)]
