"""What decoding sends is put on the hardware once it changed by a tenth, taken away with the deployment, and what an
earlier life left there is found."""

from types import SimpleNamespace

import pytest

from infer_workload.serving.workload_traffic import DecodeTraffic, WorkloadTraffic, decode_traffic

NODES = ("sn0-c00-n0", "sn0-c00-n1")


class Ports:
    """The emulated hardware as far as loads go."""

    def __init__(self, *left):
        self.loads = dict.fromkeys(left)
        self.reported = 0

    async def offer(self, name, traffic):
        self.reported += 1
        if traffic is None:
            del self.loads[name]
        else:
            self.loads[name] = traffic

    async def traffic_names(self):
        return frozenset(self.loads)


def a_live(name="r1", batch=10, nodes=NODES, step_s=0.03, serves=True):
    timing = SimpleNamespace(sent_bytes=lambda requests: requests * 1e6)
    dies = 16 * len(nodes)
    pool = SimpleNamespace(step_s=step_s, active=batch * dies, dies=[None] * dies, timing=timing)
    deployment = SimpleNamespace(pools=SimpleNamespace(decode=nodes))
    engine = SimpleNamespace(pool=pool, deployment=deployment)
    return SimpleNamespace(name=name, engine=engine, serves=serves, spec=SimpleNamespace(instance="i"))


def test_the_rate_is_bytes_over_the_step_as_far_as_they_leave_the_node():
    found = decode_traffic(a_live())
    assert (found.instance, found.nodes) == ("i", NODES)
    assert found.gbps_per_npu == pytest.approx(2 * 16 / 31 * 10e6 / 0.03 / 1e9)


@pytest.mark.parametrize("live", [a_live(batch=0), a_live(step_s=0.0), a_live(serves=False), a_live(nodes=NODES[:1])])
def test_nothing_is_sent_where_nothing_decodes_or_nothing_leaves(live):
    assert decode_traffic(live) is None


async def test_only_changes_are_reported():
    ports = Ports()
    own = WorkloadTraffic(ports)
    assert await own.tell([]) == 0
    assert await own.tell([a_live()]) == 1
    assert await own.tell([a_live(batch=10.5)]) == 0
    assert await own.tell([a_live(batch=12)]) == 1
    assert await own.tell([a_live(batch=12), a_live("r2")]) == 1
    assert set(ports.loads) == {"infer-r1", "infer-r2"}
    assert await own.tell([a_live("r2")]) == 1
    assert set(ports.loads) == {"infer-r2"}


async def test_what_an_earlier_life_left_is_taken_away_and_others_loads_are_not():
    ports = Ports("infer-gone", "infer-r1", "by-hand")
    await WorkloadTraffic(ports).tell([a_live()])
    assert set(ports.loads) == {"infer-r1", "by-hand"}
    assert isinstance(ports.loads["infer-r1"], DecodeTraffic)


async def test_a_start_without_deployments_takes_leftovers_away():
    ports = Ports("infer-gone", "by-hand")
    await WorkloadTraffic(ports).tell([])
    assert set(ports.loads) == {"by-hand"}
