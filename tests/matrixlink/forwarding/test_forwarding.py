"""Tables follow their condition, whatever happened on the way to it."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fabric_traffic.element_events import drain, lost, recovered, undrain
from matrixcommon.model.errors import InvalidField
from matrixlink.forwarding.clos_shape import NONE, ClosShape
from matrixlink.forwarding.element_state import ElementEvent, ElementState
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixresource.topology.loading import load_spec
from tests.matrixlink.forwarding.plain import ReferenceTables, trace_path

ONE = ClosShape(nodes=4, sub_planes=2, dies=4, cpus=2, chips=4)
FEW_CHIPS = ClosShape(nodes=3, sub_planes=1, dies=5, cpus=1, chips=3)
JOINED = ClosShape(nodes=2, sub_planes=2, dies=2, cpus=1, chips=2, supernodes=3, spines=2)
SHAPES = [ONE, FEW_CHIPS, JOINED]


def draw_events(shape):
    """Losses, degradations, repairs, drains of any element."""
    elements = [(kind, at) for kind, size in shape.sizes.items() for at in itertools.product(*map(range, size))]
    change = st.sampled_from(
        [{"share": 0.0}, {"share": 0.0}, {"share": 0.5}, {"share": 1.0}, {"drained": True}, {"drained": False}]
    )
    event = st.builds(lambda element, what: ElementEvent(*element, **what), st.sampled_from(elements), change)
    return st.lists(st.lists(event, min_size=1, max_size=4), max_size=8)


cases = st.sampled_from(SHAPES).flatmap(lambda shape: st.tuples(st.just(shape), draw_events(shape)))


def all_tables(tables):
    return {"l1": tables.l1.copy(), "l2": tables.l2.copy(), "l3": tables.l3.copy()}


def repair_events(tables):
    """Events that repair and undrain everything."""
    condition = tables.condition
    for kind, share in condition.share.items():
        for at in zip(*np.nonzero((share < 1) | condition.drained[kind]), strict=True):
            yield ElementEvent(kind, tuple(int(n) for n in at), share=1.0, drained=False)


@settings(max_examples=120, deadline=None)
@given(cases)
def test_tables_depend_only_on_the_current_condition(case):
    shape, batches = case
    tables = ForwardingTables(shape)
    first, first_version = all_tables(tables), tables.version
    for batch in batches:
        before = all_tables(tables)
        change = tables.take(batch)
        anew = ForwardingTables(shape, tables.condition)
        assert tables.version == anew.version
        assert (tables.link_shares == anew.link_shares).all()
        for name, table in all_tables(tables).items():
            assert (table == getattr(anew, name)).all()
            named = getattr(change, name)
            different = np.flatnonzero((table != before[name]).ravel())
            assert (named.at == different).all()
            assert (named.before == before[name].ravel()[different]).all()
            assert (named.after == table.ravel()[different]).all()
    tables.take(repair_events(tables))
    assert all((table == first[name]).all() for name, table in all_tables(tables).items())
    assert tables.version == first_version


@settings(max_examples=25, deadline=None)
@given(cases)
def test_every_entry_equals_the_reference(case):
    shape, batches = case
    tables = ForwardingTables(shape)
    for batch in batches:
        tables.take(batch)
    plain = ReferenceTables(tables.condition)
    for name in ("l1", "l2", "l3"):
        table = getattr(tables, name)
        for at in np.ndindex(table.shape):
            assert table[at] == getattr(plain, name)(*at), (name, at)


@settings(max_examples=25, deadline=None)
@given(cases)
def test_no_route_uses_dead_or_drained_elements(case):
    shape, batches = case
    tables = ForwardingTables(shape)
    for batch in batches:
        tables.take(batch)
    plain = ReferenceTables(tables.condition)
    ends = range(shape.all_nodes * shape.ends)
    for plane, source, target in itertools.product(range(shape.sub_planes), ends, ends):
        n, m = source // shape.ends, target // shape.ends
        open_ends = plain.up("end", plane, n, source % shape.ends) and plain.up("end", plane, m, target % shape.ends)
        if not open_ends or source == target:
            continue
        met = trace_path(tables, plane, source, target)
        assert (met is not None) == (n == m or bool(plain.serving(plane, n, m)))
        assert met is None or all(plain.up(*element) for element in met)


whole = ForwardingTables(ClosShape())


@pytest.mark.parametrize(
    ("event", "entry", "port"),
    [
        (None, (0, 3, 7, 5), 20 + 5),  # die 5: chip 5
        (None, (6, 47, 0, 18), 20 + 2),  # CPU 2: chip 2
        (None, (2, 9, 9, 11), 11),  # its own die
        (lost("l2", 0, 0, 5), (0, 3, 7, 5), 20 + 11),  # the eleventh of fifteen (10 mod 15), 5 left out
        (lost("l2", 0, 0, 5), (1, 3, 7, 5), 20 + 5),  # another sub-plane
        (lost("l2", 0, 0, 5), (0, 3, 7, 6), 20 + 6),  # another die
        (lost("cable", 0, 7, 5), (0, 3, 7, 5), 20 + 11),  # the far cable counts as the near one
        (lost("cable", 0, 8, 5), (0, 3, 7, 5), 20 + 5),
        (drain("l2", 0, 0, 5), (0, 3, 7, 5), 20 + 11),  # drained is as lost, for new traffic
        (lost("l1", 0, 7), (0, 3, 7, 5), NONE),
        (lost("end", 0, 7, 5), (0, 3, 7, 5), NONE),
        (lost("end", 0, 7, 5), (0, 3, 7, 6), 20 + 6),
        (drain("end", 0, 7, 5), (0, 3, 7, 5), NONE),
        (drain("end", 0, 7, 5), (0, 7, 7, 5), 5),  # what is on its way arrives
        (ElementEvent("cable", (0, 7, 5), share=0.5), (0, 3, 7, 5), 20 + 5),  # half a cable is a cable
    ],
)
def test_the_rule(event, entry, port):
    if event is None:
        assert whole.l1[entry] == port
        return
    tables = ForwardingTables(ClosShape())
    tables.take([event])
    assert tables.l1[entry] == port


def test_a_lost_chip_changes_the_entries_that_pointed_at_it():
    tables = ForwardingTables(ClosShape())
    change = tables.take([lost("l2", 0, 0, 3)])
    assert (len(change.l1), len(change.l2)) == (48 * 47 * 2, 48 * 20)  # a die and a CPU of every other node
    assert change.planes.tolist() == [0]
    assert set(change.l1.before.tolist()) == {20 + 3}
    assert NONE not in change.l1.after
    assert len(tables.take([lost("l2", 0, 0, 3)])) == 0


def test_drained_chips_still_deliver():
    tables = ForwardingTables(ClosShape())
    change = tables.take([drain("l2", 0, 0, 12)])
    assert (len(change.l1), len(change.l2)) == (48 * 47, 0)
    assert len(tables.take([undrain("l2", 0, 0, 12)]).l1) == 48 * 47


def test_built_with_a_condition_given():
    condition = ElementState(ONE)
    condition.take([lost("l2", 1, 0, 2), drain("cable", 0, 1, 1)])
    tables = ForwardingTables(ONE)
    tables.take([lost("l2", 1, 0, 2), drain("cable", 0, 1, 1)])
    assert (ForwardingTables(ONE, condition).l1 == tables.l1).all()


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (ElementEvent("fuse", (0,)), "events[1].kind"),
        (lost("l2", 0, 3), "events[1].at"),
        (lost("cable", 0, 48, 3), "events[1].at"),
        (lost("cable", 0, -1, 3), "events[1].at"),
        (ElementEvent("cable", (0, 1, 3), share=1.5), "events[1].share"),
        (ElementEvent("cable", (0, 1, 3), share=float("nan")), "events[1].share"),
        (lost("l3", 0, 0, 0), "events[1].at"),
    ],
)
def test_an_invalid_event_is_named_without_a_change(event, field):
    tables = ForwardingTables(ClosShape())
    with pytest.raises(InvalidField) as refused:
        tables.take([lost("l2", 0, 0, 3), event])
    assert refused.value.field == field
    assert (tables.l1 == whole.l1).all()
    assert len(tables.take([recovered("l2", 0, 0, 3)])) == 0


@pytest.mark.parametrize(
    ("sizes", "field"),
    [({"nodes": 0}, "nodes"), ({"chips": 40}, "chips"), ({"supernodes": 2}, "spines"), ({"spines": 2}, "spines"),
     ({"nodes": 40_000}, "nodes"), ({"dies": 120}, "dies"), ({"chips": 0}, "chips")],
)  # fmt: skip
def test_invalid_shapes_are_refused(sizes, field):
    with pytest.raises(InvalidField) as refused:
        ClosShape(**sizes)
    assert refused.value.field == field


def test_the_shape_of_the_spec_is_the_default():
    assert ClosShape.of(load_spec()) == ClosShape()
    assert (ClosShape().switches, whole.entries) == (448, 430_080)
    pods = ClosShape(sub_planes=1, supernodes=22, spines=16)
    assert (pods.switches, pods.all_nodes * pods.ends) == (1664, 21_120)


def test_a_chip_with_more_than_256_ports_reaches_each_node():
    shape = ClosShape(nodes=300, sub_planes=1, dies=1, cpus=1, chips=2)
    tables = ForwardingTables(shape)
    assert (tables.l2[0, 0, 1] == np.arange(300)[:, None]).all()
    changed = tables.take([ElementEvent("cable", (0, 299, 1), share=0.0)])
    assert (changed.l2.before == 299).all()
    assert (tables.l2[0, 0, 1, 299] == NONE).all()
    tables.take([ElementEvent("cable", (0, 299, 1), share=1.0)])
    assert (tables.l2 == ForwardingTables(shape).l2).all()
