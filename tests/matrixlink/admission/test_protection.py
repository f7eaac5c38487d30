"""What is promised to survive a failure survives it: every L2 chip, cable, L1 chip, sub-plane, RDMA port and subnet, one
after the other, alone and with others filling the plane."""

import pytest

from matrixcommon.model.errors import InsufficientBandwidth
from matrixcommon.model.planes import Plane
from matrixlink.admission.admission import BandwidthRequest, admit, reallocate
from matrixlink.admission.bandwidth_ledger import BandwidthLedger
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.model.protection import LEVELS, Protection
from matrixlink.routing.routing import choose_needs
from matrixresource.topology import Supernode
from tests.matrixlink.fleet import NODES, slice_request
from tests.matrixlink.machine import overcommitted_links

ALL = Supernode().nodes()
CHIPS = [(p, k) for p in range(7) for k in range(16)]
BOUND = {"anyL2Chip": 392 * 111 / 112, "anyCable": 392 * 111 / 112, "anyL1Chip": 336.0, "anySubPlane": 336.0}
"""The largest floor per NPU of each level, GB/s: 16 x 28 x 7 less one chip of 112, or one sub-plane of 7, over 8."""


def reported(view, type):
    return next((each.status, each.reason) for each in view.conditions if each.type == type)


class AdmissionBoard:
    """A fabric, the two books and some claims on them, without tables."""

    def __init__(self):
        self.fabric = Fabric([Supernode()])
        self.undamaged_fabric = self.fabric.as_built()
        self.book = BandwidthLedger(self.fabric, self.fabric.usable_rates)
        self.healthy_ledger = BandwidthLedger(
            self.fabric, lambda plane, owner: self.fabric.whole(plane, "leaf" in owner)
        )
        self.specs = {}

    def claim(self, name, fabric=None):
        plane, members, floor, level, rank = self.specs[name]
        return BandwidthRequest(
            name, plane, choose_needs(fabric or self.fabric, plane, members, level), floor, level, rank
        )

    def admit(self, name, members, floor, level="none", plane=Plane.UB, rank=0):
        self.specs[name] = (plane, members, floor, Protection(level), (rank, len(self.specs)))
        try:
            self.book.put(name, admit(self.book, self.claim(name)))
            self.healthy_ledger.put(name, admit(self.healthy_ledger, self.claim(name, self.undamaged_fabric)))
        except InsufficientBandwidth:
            del self.specs[name]
            raise

    def after(self, lost):
        """What each slice keeps once these ports (by owner) are dead; all is repaired again afterwards."""
        for owner, ports in lost.items():
            self.fabric.set_ports(owner, dict.fromkeys(ports, 0.0))
        kept = reallocate(self.book, [self.claim(name) for name in self.specs], self.healthy_ledger)
        assert overcommitted_links(self.book) == []
        for owner in lost:
            self.fabric.set_ports(owner, {})
        return kept

    def repaired(self):
        return self.after({})


def lost_chip(p, k):
    return {node: [f"ub-p{p}-k{k:02d}"] for node in ALL}


def lost_l1(node, p):
    fabric = Fabric([Supernode()])
    return {node: [port for port in fabric.built if port.startswith(f"ub-p{p}-") or port.endswith(f"-p{p}")]}


@pytest.fixture
def board():
    return AdmissionBoard()


def test_a_full_floor_alone_survives_each_of_the_112_l2_chips(board):
    board.admit("s", ALL, BOUND["anyL2Chip"], "anyL2Chip")
    for chip in CHIPS:
        kept = board.after(lost_chip(*chip))["s"]
        assert kept.part == 1.0, chip
        assert "would lack room" in kept.unprotected, "there is nothing left to protect it from a second loss"
    assert (board.repaired()["s"].part, board.repaired()["s"].unprotected) == (1.0, "")


def test_a_protected_floor_survives_each_of_the_112_l2_chips_on_a_full_plane(board):
    """The others are older, of a better class, and not protected: their detours must not take what was set aside."""
    for at, node in enumerate(ALL):
        board.admit(f"old{at}", [node, ALL[at - 1]], 60.0, rank=0)
    board.admit("s", ALL, 200.0, "anyL2Chip", rank=1)
    board.admit("t", ALL[:24], 60.0, "anyCable", rank=1)
    room = BOUND["anyL2Chip"] - 120 * 111 / 112 - 200
    for at, node in enumerate(ALL):
        board.admit(f"new{at}", [node], room - (60 if at < 24 else 0), "anyL2Chip", rank=2)
    protected = [name for name in board.specs if not name.startswith("old")]
    assert len(protected) == 50
    for chip in CHIPS:
        kept = board.after(lost_chip(*chip))
        assert {kept[name].part for name in protected} == {1.0}, chip
        assert min(each.part for each in kept.values()) < 1, "the plane is full: somebody who is not protected yields"
    assert all((each.part, each.unprotected) == (1.0, "") for each in board.repaired().values())


def test_without_protection_a_full_floor_does_not_survive_any_chip(board):
    board.admit("s", ALL, 392.0)
    assert board.after(lost_chip(3, 11))["s"].part == pytest.approx(111 / 112)


@pytest.mark.parametrize("level", sorted(BOUND))
def test_a_floor_that_would_not_survive_is_refused_with_links_and_what_would_fit(board, level):
    with pytest.raises(InsufficientBandwidth) as refused:
        board.admit("s", ALL[:4], BOUND[level] + 0.5, level)
    summary, first = refused.value.blocking[:2]
    assert summary["fitsFloorGbpsPerNpu"] == pytest.approx(BOUND[level], abs=1e-4)
    assert (first["freeGbps"], level in refused.value.message) == (28.0, True)
    assert first["link"].partition(".")[0] in ALL[:4]
    board.admit("s", ALL[:4], BOUND[level], level)


@pytest.mark.parametrize("members", [ALL[:1], ALL[:3]])
def test_any_cable_is_any_uplink_of_any_member(board, members):
    board.admit("s", members, BOUND["anyCable"], "anyCable")
    for node in members:
        for p, k in CHIPS:
            assert board.after({node: [f"ub-p{p}-k{k:02d}"]})["s"].part == 1.0


def test_any_l1_chip_and_any_sub_plane(board):
    board.admit("s", ALL[:4], BOUND["anyL1Chip"], "anyL1Chip")
    board.admit("t", ALL[4:], BOUND["anySubPlane"], "anySubPlane")
    for p in range(7):
        for node in ALL[:4]:
            assert board.after(lost_l1(node, p))["s"].part == 1.0
        everywhere = {node: ports for each in ALL for node, ports in lost_l1(each, p).items()}
        assert {each.part for each in board.after(everywhere).values()} == {1.0}


def test_losing_half_a_cables_lanes_is_survived(board):
    board.admit("s", ALL[:3], BOUND["anyCable"], "anyCable")
    for gbps in (14.0, 7.0):
        board.fabric.set_ports(ALL[0], {"ub-p3-k11": gbps})
        assert reallocate(board.book, [board.claim("s")], board.healthy_ledger)["s"].part == 1.0


def test_a_smaller_floor_stays_protected_after_a_loss_and_a_second_one_is_survived(board):
    board.admit("s", ALL, 300.0, "anyL2Chip")
    first = board.after(lost_chip(0, 0))["s"]
    assert (first.part, first.unprotected) == (1.0, "")
    both = {node: [*ports, "ub-p1-k01"] for node, ports in lost_chip(0, 0).items()}
    assert board.after(both)["s"].part == 1.0


def test_on_rdma_half_of_an_npus_rate_survives_any_port_and_a_whole_subnet(board):
    board.admit("s", ALL[:8], 25.0, "anyPort", Plane.RDMA)
    board.admit("t", ALL[8:], 25.0, "disjointPath", Plane.RDMA)
    with pytest.raises(InsufficientBandwidth):
        board.admit("u", ALL[:8], 0.5, "anyPort", Plane.RDMA)
    for npu in range(8):
        for die in range(2):
            for node in (ALL[0], ALL[9]):
                assert {each.part for each in board.after({node: [f"rdma-npu{npu}-die{die}"]}).values()} == {1.0}
    for die in range(2):
        subnet = {node: [f"rdma-npu{npu}-die{die}" for npu in range(8)] for node in ALL}
        trunks = {board.fabric.leaves_at(node)[die]: [f"spine{k}" for k in range(8)] for node in ALL}
        assert board.after(subnet | trunks)["t"].part == 1.0


def test_every_level_documents_its_failure_and_planes():
    assert {level for level, terms in LEVELS.items() if Plane.VPC in terms.planes} == {Protection.NONE}
    assert all(terms.sentence.endswith(".") for terms in LEVELS.values())


async def test_a_protected_slice_keeps_its_floor_and_reports_lost_and_restored_protection(stack):
    view = await stack.active(request=slice_request(floor_gbps_per_npu=388.0, protection="anyL2Chip"))
    assert (view.protected, reported(view, "Protected")) == (True, ("True", "ReserveBooked"))
    await stack.client.admit("b-ub", slice_request(instance="b", floor_gbps_per_npu=0.5))
    for node in stack.hardware.values():
        node.ports["ub-p3-k11"] = 0.0
    stack.restart()
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.floor_kept_gbps_per_npu, view.protected) == (388.0, False)
    assert reported(view, "Protected") == ("False", "ReserveLost")
    assert "would lack room" in next(each.message for each in view.conditions if each.type == "Protected")
    await stack.client.withdraw("b-ub")
    stack.restart()
    for node in stack.hardware.values():
        node.ports.clear()
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.protected, reported(view, "Protected")) == ("Active", True, ("True", "ReserveBooked"))


async def test_a_new_slice_in_a_damaged_fabric_cannot_take_anothers_protection(stack):
    """What was set aside is not given away while it is not needed, so that repair finds it there."""
    await stack.active(request=slice_request(floor_gbps_per_npu=300.0, protection="anySubPlane"))
    for node in stack.hardware.values():
        node.ports |= {port: 0.0 for port in stack.slice_controller().fabric.built if port.startswith("ub-p6-")}
    await stack.settle()
    assert (await stack.client.find_slice("a-ub")).protected is False
    with pytest.raises(InsufficientBandwidth):
        await stack.client.admit("b-ub", slice_request(instance="b", floor_gbps_per_npu=43.0))
    await stack.client.admit("b-ub", slice_request(instance="b", floor_gbps_per_npu=36.0))
    for node in stack.hardware.values():
        node.ports.clear()
    await stack.settle()
    assert (await stack.client.find_slice("a-ub")).protected is True


async def test_backup_paths_list_the_alternatives_for_each_failure(stack):
    await stack.client.admit("a-ub", slice_request(floor_gbps_per_npu=100.0, protection="anyL2Chip"))
    await stack.client.admit("a-rdma", slice_request("rdma", floor_gbps_per_npu=10.0, protection="disjointPath"))
    await stack.client.admit("a-vpc", slice_request("vpc"))
    listed = (await stack.http.get("/v1/backup-paths")).json()["items"]
    assert [each["name"] for each in listed] == ["a-rdma", "a-ub"]
    ub = (await stack.http.get("/v1/backup-paths/a-ub")).json()
    assert ub["now"] == {"fails": "", "subPlanes": list(range(7)), "paths": 112, "largestShare": round(1 / 112, 9)}
    assert len(ub["alternatives"]) == 112
    assert ub["alternatives"][-1] == {
        "fails": "sn0-l2p6-k15", "subPlanes": list(range(7)), "paths": 111, "largestShare": round(1 / 111, 9),
    }  # fmt: skip
    rdma = listed[0]
    assert [each["subPlanes"] for each in rdma["alternatives"]] == [[1], [0]]
    assert [each["largestShare"] for each in rdma["alternatives"]] == [1.0, 1.0]
    stack.hardware[NODES[0]].ports["ub-p6-k15"] = 0.0
    await stack.report()
    assert (await stack.http.get("/v1/backup-paths/a-ub")).json()["now"]["paths"] == 111
    assert (await stack.http.get("/v1/backup-paths/a-vpc")).status_code == 404
