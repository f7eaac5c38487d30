"""Faults over time: the rules of frequency and duration against a plain reading of them, and where a fault lies."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from matrixcommon.model.hardware_names import NpuName
from matrixresource.nodes.fault_levels import DurationRule, FrequencyRule, fault_table, level_of
from matrixresource.nodes.fault_rules import (
    FaultRecord,
    after_observation,
    after_release,
    dies_of,
    lost_uplinks,
    unusable_dies,
)
from tests.matrixresource.reporting import NODE, ReportingService

OFTEN = FrequencyRule(times=3, window_s=100, level="ManuallySeparate", release_s=170)
LONG = DurationRule(lasts_s=20, recovers_s=60, level="PreSeparate")
ECC = "80E39200"  # a hardware fault of a chip: restart; twice a day separates it
ROCE = "81078603"  # nothing by itself; long or often it is something


def raised_at(seen: list[tuple[float, bool]], rule: FrequencyRule) -> float | None:
    """Read off the rule: when it last raised the fault, from all that was ever seen of it."""
    starts = [
        at for (at, present), (_, before) in zip(seen, [(0.0, False), *seen], strict=False) if present and not before
    ]
    last, counted = None, 0
    for index, at in enumerate(starts):
        if sum(at - other <= rule.window_s for other in starts[counted : index + 1]) >= rule.times:
            last, counted = at, index + 1
    return last


def prolonged(seen: list[tuple[float, bool]], rule: DurationRule) -> bool:
    """Read off the rule: at some look it had been there too long, and at none since had it been away long enough."""
    state = False
    for index, (at, present) in enumerate(seen):
        run = index
        while run > 0 and seen[run - 1][1] == present:
            run -= 1
        for_s = at - seen[run][0]
        if present and for_s > rule.lasts_s:
            state = True
        if not present and for_s >= rule.recovers_s:
            state = False
    return state


LOOKS = st.lists(st.tuples(st.sampled_from([1, 5, 10, 19, 20, 21, 40, 60, 61, 100, 170]), st.booleans()), max_size=40)


ON_THE_EDGE = [(1, True), (20, False), (20, True), (20, False), (40, True)]  # the third time, just at the window's end


@settings(deadline=None)
@example(looks=ON_THE_EDGE, forever=True)
@given(looks=LOOKS, forever=st.booleans())
def test_incremental_record_equals_rules_over_the_whole_history(looks, forever):
    often = OFTEN if not forever else FrequencyRule(OFTEN.times, OFTEN.window_s, OFTEN.level)
    record, seen, at = FaultRecord(), [], 1000.0
    for after_s, present in looks:
        at += after_s
        seen.append((at, present))
        record = after_observation(record, present, at, often, LONG)
        last = raised_at(seen, often)
        assert (record.separated_at is not None) == (last is not None and (forever or at - last < OFTEN.release_s))
        assert record.prolonged == prolonged(seen, LONG)
        assert (record.since is not None) == present
        assert len(record.times) < often.times
    assert after_release(record).separated_at is None


def test_the_rules_are_the_published_ones():
    table = fault_table()
    assert sum(rule.times == 2 for rule in table.frequency.values()) == 41
    assert table.frequency["80E18005"].times == 3
    assert table.frequency[ROCE] == FrequencyRule(5, 86400, "ManuallySeparate", 172800)
    assert table.duration == {ROCE: DurationRule(20, 60, "PreSeparate")}
    assert [level_of(code).name for code in (ECC, ROCE, "80E01801", "80C98000")] == [
        "Restart", "NotHandle", "RestartBusiness", "RestartRequest",
    ]  # fmt: skip
    assert level_of("made up").name == "Separate"
    assert level_of("made up", "minor").name == "NotHandle"


@pytest.mark.parametrize(
    ("component", "dies"),
    [
        ("npu0", 0b11),
        ("npu5", 0b11 << 10),
        ("npu5-die1", 1 << 11),
        ("npu7-die0", 1 << 14),
        ("rdma-npu2-die0", 1 << 4),
        ("npu1-die0-p6", 1 << 2),
        ("node", 0),
        ("l1p3", 0),
        ("ub-p3-k11", 0),
        ("npu8", 0),
        ("npu55", 0),
    ],
)
def test_dies_of_a_component(component, dies):
    assert dies_of(component) == dies


def test_an_l1_chip_is_lost_with_its_last_uplink():
    ports = [f"ub-p3-k{k:02d}" for k in range(16)]
    assert lost_uplinks([*ports[:15], "ub-p2-k00", "ub-p3-k00"], 16) == []
    assert lost_uplinks([*ports, "ub-p2-k00"], 16) == ["l1p3"]


def test_a_fault_of_one_die_leaves_the_others_to_work_on(tmp_path):
    service = ReportingService(tmp_path)
    service.report(("220001001", "npu5-die1"), ("010001001", "npu2"))
    node, npu = service.node, service.npu(5)
    assert unusable_dies(node) == 1 << 11
    assert (node.health, node.fault(), node.whole_fault()) == ("Unhealthy", "Unhealthy", None)
    assert (npu.health, npu.level) == ("Unhealthy", "Separate")
    assert [(die.die, die.health, die.level, die.schedulable) for die in npu.dies] == [
        (10, "Healthy", None, True),
        (11, "Unhealthy", "Separate", False),
    ]
    assert (service.npu(2).health, service.npu(2).level) == ("SubHealthy", "SubHealth")
    assert (node.view().npus, node.view().usable_npus) == (8, 7)
    service.report(("0x00f103b0", "l1p3"))
    assert (unusable_dies(service.node), service.node.whole_fault()) == (0, "Unhealthy")
    service.report()
    assert (service.node.faults, service.node.health, service.node.fault()) == ([], "Healthy", None)


def test_a_frequent_fault_separates_its_npu_across_a_restart_until_it_is_released(tmp_path):
    service = ReportingService(tmp_path)
    service.report((ECC, "npu3"))
    assert service.npu(3).level == "Restart"
    service.report((ECC, "npu3"), after_s=10)
    service.report(after_s=10)
    assert service.npu(3).level is None, "seen once, in two reports, and gone"
    service.start()
    service.report((ECC, "npu3"), (ECC, "npu4"), after_s=3600)
    assert [service.npu(n).level for n in (3, 4)] == ["ManuallySeparate", "Restart"]
    service.report(after_s=10)
    service.start()
    service.report(after_s=7 * 86400)
    (fault,) = service.npu(3).faults
    assert (fault.level, fault.active, fault.raised_by) == ("ManuallySeparate", False, "Frequency")
    assert unusable_dies(service.node) == 0b11 << 6
    service.reports.release(NpuName(f"{NODE}-npu3"))
    assert (service.npu(3).level, unusable_dies(service.node), service.node.health) == (None, 0, "Healthy")
    service.start()
    service.report((ECC, "npu3"), after_s=10)
    assert service.npu(3).level == "Restart", "released, it is counted anew"


def test_a_lasting_fault_keeps_new_work_off_its_die_until_it_has_been_well_for_a_minute(tmp_path):
    service = ReportingService(tmp_path)
    reported = []
    for at_s, down in [(0, True), (20, True), (30, True), (40, False), (90, False), (100, False)]:
        service.start()
        service.clock.at = 1_800_000_000.0 + at_s
        service.report(*([(ROCE, "rdma-npu2-die0")] if down else []))
        reported.append((at_s, service.npu(2).level, unusable_dies(service.node)))
    assert reported == [
        (0, "NotHandle", 0),
        (20, "NotHandle", 0),
        (30, "PreSeparate", 1 << 4),
        (40, "PreSeparate", 1 << 4),
        (90, "PreSeparate", 1 << 4),
        (100, None, 0),
    ]
    assert service.node.whole_fault() is None


def test_fifteen_uplinks_of_a_plane_may_fail_the_sixteenth_takes_the_node_out(tmp_path):
    service = ReportingService(tmp_path)
    ports = [("0x08520003/L2", f"ub-p3-k{k:02d}") for k in range(16)]
    service.report(*ports[:15])
    assert (service.node.health, service.node.fault()) == ("Healthy", None)
    service.report(*ports)
    assert (service.node.health, service.node.whole_fault()) == ("Unhealthy", "Unhealthy")
    service.report(*ports[1:])
    assert (service.node.health, service.node.fault()) == ("Healthy", None)


def test_a_member_names_the_faults_behind_its_health(tmp_path):
    service = ReportingService(tmp_path)
    service.report(("0x08520003/L2", "ub-p3-k01"))
    assert (service.node.health, service.node.member_view().fault) == ("Healthy", "")
    service.report(("110001010", "node"), ("0x08520003/L2", "ub-p3-k01"))
    assert (service.node.health, service.node.member_view().fault) == ("SubHealthy", "node 110001010 (SubHealth)")
    service.report(("110001010", "node"), ("220001001", "npu5-die1"))
    assert (service.node.health, service.node.member_view().fault) == ("Unhealthy", "npu5-die1 220001001 (Separate)")


async def test_lost_node_has_unknown_power_and_health(tmp_path):
    service = ReportingService(tmp_path)
    service.report()
    assert (service.node.view().power, service.node.view().health) == ("On", "Healthy")
    service.clock.at += 1000
    await service.reports.watch_leases()
    lost = service.node.view()
    assert (lost.agent, lost.power, lost.health) == ("Lost", "Unknown", "Unknown")
    assert service.npu(0).health == "Unknown"
    service.report()
    assert (service.node.view().power, service.node.view().health) == ("On", "Healthy")
    service.report(("220001001", "npu5-die1"))
    service.clock.at += 1000
    await service.reports.watch_leases()
    level = service.npu(5).level
    assert (service.node.health, service.node.health_because) == ("Unhealthy", f"npu5-die1 220001001 ({level})")
