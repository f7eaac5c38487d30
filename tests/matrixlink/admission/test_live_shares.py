"""After any sequence of changes the live rates are those of sharing everything anew, and who was not named kept his."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fabric_traffic import incremental
from benchmarks.fabric_traffic.incremental import IncrementalMaxMin
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing import native_kernel
from matrixlink.fabric.sharing.flow import Flow
from matrixlink.fabric.sharing.max_min import Overcommitted, share
from matrixlink.fabric.sharing.max_min_arrays import fair_rates
from matrixlink.fabric.sharing.traffic import traffic

LINKS = 5
path = st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=3, unique=True)
arrival = st.tuples(
    st.just("add"), path, st.sampled_from([1.0, 2.0, 0.3]), st.sampled_from([0.0, 0.0, 2.0]),
    st.sampled_from([np.inf, np.inf, 3.0, 7.5]),
)  # fmt: skip
departure = st.tuples(st.just("remove"), st.integers(0, 30))
change = st.tuples(st.just("capacity"), st.integers(0, LINKS - 1), st.sampled_from([0.0, 7.0, 14.0, 28.0]))


@pytest.fixture(params=["kernel", "arrays"])
def implementation(request, monkeypatch):
    if request.param == "arrays":
        monkeypatch.setattr(incremental, "load_kernel", lambda: None)
    elif native_kernel.load_kernel() is None:
        pytest.skip("no C compiler here")
    return request.param


def apply(shares, current, links, step):
    """Do one step on both; what was looked at, or None when it was refused."""
    kind, *what = step
    if kind == "add":
        number, seen = shares.add(*what)
        current[number] = Flow(tuple(what[0]), *what[1:])
        return {number, *seen}
    if kind == "remove":
        if not current:
            return set()
        number = sorted(current)[what[0] % len(current)]
        del current[number]
        return set(shares.remove(number))
    seen = shares.set_capacity(*what)
    links[what[0]] = what[1]
    return set(seen)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(arrival, arrival, departure, change), max_size=30), st.booleans())
def test_incremental_changes_equal_a_full_computation(steps, compiled_way):
    kept = incremental.load_kernel
    incremental.load_kernel = native_kernel.load_kernel if compiled_way else lambda: None
    try:
        shares = IncrementalMaxMin([28.0] * LINKS, 40, 3)
    finally:
        incremental.load_kernel = kept
    current, links = {}, dict.fromkeys(range(LINKS), 28.0)
    for step in steps:
        before = shares.rates()
        try:
            seen = apply(shares, current, links, step)
        except Overcommitted:
            assert shares.rates() == before
            continue
        now = shares.rates()
        right = dict(zip(current, share(list(current.values()), links), strict=True))
        assert now == pytest.approx(right, rel=1e-9, abs=1e-9)
        assert all(now[flow] == before[flow] for flow in now if flow not in seen)


@pytest.mark.usefixtures("implementation")
def test_invalid_or_overcommitted_changes_are_rejected_without_effect():
    shares = IncrementalMaxMin([10.0, 5.0], 2, 2)
    first, _ = shares.add([0, 1], floor=4)
    with pytest.raises(Overcommitted) as refused:
        shares.add([0, 1], floor=2)
    assert refused.value.links == [1]
    with pytest.raises(Overcommitted):
        shares.set_capacity(1, 3)
    for links, more in [([2], {}), ([], {}), ([0], {"weight": 0}), ([0], {"floor": 2, "ceiling": 1})]:
        with pytest.raises(InvalidField):
            shares.add(links, **more)
    assert shares.rates() == {first: 5.0}
    shares.add([0])
    with pytest.raises(InvalidField):
        shares.add([0])
    shares.remove(first)
    with pytest.raises(KeyError):
        shares.remove(first)
    assert list(shares.rates().values()) == [10.0]


def test_rates_do_not_drift_over_thousands_of_changes(implementation):
    """Sums that are followed change by change must not drift."""
    chance = np.random.default_rng(7)
    capacity = chance.choice([7.0, 14.0, 28.0], 120)
    shares, current = IncrementalMaxMin(capacity, 700, 4), {}
    for step in range(2_600 if implementation == "kernel" else 120):
        if current and (len(current) > 600 or chance.random() < 0.45):
            gone = int(chance.choice(list(current)))
            shares.remove(gone)
            del current[gone]
        else:
            path = chance.choice(120, int(chance.integers(1, 5)), replace=False).tolist()
            terms = (
                float(chance.choice([1.0, 0.3, 2.0])),
                0.02 * int(chance.random() < 0.1),
                float(chance.choice([np.inf, 0.5])),
            )
            current[shares.add(path, *terms)[0]] = (path, *terms)
        if step % 20 == 0:
            link = int(chance.integers(120))
            capacity[link] = chance.choice([7.0, 14.0, 28.0])
            shares.set_capacity(link, capacity[link])
        if step % 100 == 99:
            paths = np.full((len(current), 4), -1)
            for row, (path, *_) in enumerate(current.values()):
                paths[row, : len(path)] = path
            _, weight, floor, ceiling = zip(*current.values(), strict=True)
            right = fair_rates(traffic(capacity, paths, weight=weight, floor=floor, ceiling=ceiling))
            assert [shares.rate(flow) for flow in current] == pytest.approx(right.tolist(), rel=1e-9, abs=1e-12)
