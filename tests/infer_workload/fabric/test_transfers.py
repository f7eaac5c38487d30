"""Transfers share ports as MatrixLink would share them, and the reduction of the fabric is what sharing finds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infer_workload.engine.kv_transfers import Transfers
from infer_workload.engine.request import InferenceRequest
from infer_workload.timing.fabric import RDMA, UB, Fabric, PortRates
from matrixlink.fabric.sharing.flow import Flow
from matrixlink.fabric.sharing.max_min import share


def request(number):
    return InferenceRequest(number, 0.0, 10, 10)


def run(transfers):
    ended = {}
    while len(transfers):
        now = transfers.due
        for transfer in transfers.pop_finished(now):
            ended[transfer.request.number] = now
    return ended


def test_transfers_to_different_dies_do_not_disturb_each_other():
    transfers = Transfers({"out": 720.0, "a": 22.5, "b": 22.5}.__getitem__)
    transfers.start(0.0, request(1), ("out", "a"), 22.5e9)
    transfers.start(0.5, request(2), ("out", "b"), 22.5e9)
    assert run(transfers) == {1: pytest.approx(1.0), 2: pytest.approx(1.5)}


def test_transfers_to_one_die_share_its_port():
    transfers = Transfers({"out": 720.0, "a": 20.0}.__getitem__)
    transfers.start(0.0, request(1), ("out", "a"), 20e9)
    transfers.start(0.5, request(2), ("out", "a"), 20e9)
    assert run(transfers) == {1: pytest.approx(1.5), 2: pytest.approx(2.0)}


def test_a_narrow_sender_is_shared_by_all():
    transfers = Transfers({"out": 30.0, "a": 20.0, "b": 20.0}.__getitem__)
    transfers.start(0.0, request(1), ("out", "a"), 15e9)
    transfers.start(0.0, request(2), ("out", "b"), 15e9)
    assert run(transfers) == {1: pytest.approx(1.0), 2: pytest.approx(1.0)}


def test_a_dead_port_keeps_its_transfer_waiting_until_it_is_repriced():
    rates = {"out": 720.0, "a": 0.0}
    transfers = Transfers(rates.__getitem__)
    transfers.start(0.0, request(1), ("out", "a"), 20e9)
    assert transfers.due == float("inf")
    rates["a"] = 20.0
    transfers.update_rates(5.0)
    assert run(transfers) == {1: pytest.approx(6.0)}


@given(
    ports=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=12),
    out=st.floats(10, 200),
    into=st.floats(10, 40),
)
def test_rates_are_those_that_share_gives(ports, out, into):
    transfers = Transfers(lambda port: out if port[0] == "out" else into)
    paths = [(("out", instance), ("in", die)) for instance, die in ports]
    for number, path in enumerate(paths):
        transfers.start(0.0, request(number), path, 1e12)
    links = {port: (out if port[0] == "out" else into) for path in paths for port in path}
    expected = share([Flow(path) for path in paths], links)
    assert 0 < transfers.due < float("inf")
    assert [current.rate for current in transfers._active] == pytest.approx([float(rate) for rate in expected])


@given(
    uplink=st.floats(10, 500),
    endpoint=st.floats(1, 30),
    senders=st.integers(1, 16),
    remote=st.sampled_from([1.0, 0.5, 304 / 319]),
)
def test_the_reduced_rate_of_a_die_is_what_share_gives_flow_by_flow(uplink, endpoint, senders, remote):
    """Each die sends a remote part over its port and the uplink and a local part over its port alone."""
    fabric = Fabric(1, {UB: {"n": PortRates([uplink], [endpoint])}, RDMA: {}}, {})
    reduced = fabric.granted_die_gbps(UB, "n", senders, remote)
    flows = [Flow(("uplink",), ceiling=endpoint * remote) for _ in range(senders)]
    rates = share(flows, {"uplink": uplink})
    assert reduced == pytest.approx(float(rates[0]) / remote)


@given(
    at=st.sampled_from([0.0, 1.8e9, 1.1e11, 4e12]),
    sizes=st.lists(st.floats(1.0, 1e9), min_size=1, max_size=8),
    gap=st.floats(0.0, 1e-3),
)
def test_transfers_end_however_coarse_the_clock_is(at, sizes, gap):
    """Emulated seconds since the epoch, sped up without an anchor, have steps of some microseconds."""
    transfers = Transfers({"out": 50.0, "a": 20.0}.__getitem__)
    for number, size in enumerate(sizes):
        transfers.start(at + number * gap, request(number), ("out", "a"), size)
    looks = 0
    while len(transfers):
        transfers.pop_finished(transfers.due)
        looks += 1
        assert looks <= len(sizes) + 1, "each look ends a transfer"
