"""What an instance needs next that no workflow carries, as a table."""

from __future__ import annotations

from math import inf

import pytest

from matrixcommon.model.planes import Plane
from matrixcompute.model.observation import Observed, ObservedSlice
from matrixcompute.reconcilers.next_step import NextStep, Situation, next_step
from matrixcompute.recovery.policy import Recovery
from matrixcompute.store.store import InstanceRow, OperationRow
from matrixresource.contract.allocations import AllocationView, MemberView
from matrixresource.contract.requested_capacity import PlacementPolicy

ONE, TWO, SPARE = "sn0-c00-n0", "sn0-c00-n1", "sn0-c00-n2"
KEEP = Recovery("keep")
LOST = Recovery("replace", (TWO,), "NodeLost", "lost", (TWO,))
RESET = Recovery("repair", (), "NodeUnhealthy", "an NPU is reset", (TWO,))
STOPPED = Recovery("hold", (), "SafetyStop", "too many at once", (TWO,))
SPARE_LOST = Recovery("replace", (SPARE,), "NodeLost", "lost", (SPARE,))
REPAIRING, CREATING = "default/replace-node-1", "default/create-instance-1"


def member(node: str, role: str = "member", agent: str = "Connected") -> MemberView:
    return MemberView(
        node=node, cabinet="sn0-c00", role=role, rank=None, state="Active", agent=agent, health="Healthy", ready=True
    )


def allocation(*members: MemberView, power: str = "On") -> AllocationView:
    return AllocationView(
        name="one", project="default", labels={}, state="Active", conditions=[], generation=1,
        created_at="", updated_at="", etag="", nodes=sum(m.role == "member" for m in members),
        npus=16, spares=0, placement=PlacementPolicy(), topology_version="t", bound=True, power=power,
        members=list(members),
    )  # fmt: skip


def joined(*nodes: str, state: str = "Active") -> tuple[ObservedSlice, ...]:
    return tuple(
        ObservedSlice(
            name=plane, plane=plane, state=state, generation=1, programmed=True, floors_kept=True, members=nodes
        )
        for plane in Plane
    )


BOTH = allocation(member(ONE), member(TWO))
WHOLE = Observed(BOTH, joined(ONE, TWO))
NOTHING = Observed(None, ())
WITH_SPARE = Observed(allocation(member(ONE), member(TWO), member(SPARE, "spare")), joined(ONE, TWO))


def seen(
    state: str,
    observed: Observed = WHOLE,
    recovery: Recovery = KEEP,
    *,
    spec: dict | None = None,
    applied: dict | None = None,
    changed: bool = False,
    refused: bool = False,
    retry_at: float = 0.0,
    backing_off: bool = False,
    may_request: bool = False,
    may_restore: bool = True,
    operation: str = CREATING,
    verb: str = "create-instance",
    ended: str = "Done",
) -> Situation:
    """An instance of two nodes that last was as it is asked to be."""
    instance = InstanceRow(
        name="one", project="default", spec={"nodes": 2} | (spec or {}), applied=applied or {"nodes": 2}, state=state,
        generation=2, observed_generation=1 if changed else 2, refused_generation=2 if refused else None,
        retry_at=retry_at, operation=operation,
    )  # fmt: skip
    before = OperationRow(name=operation, verb=verb, state=ended)
    return Situation(
        instance, observed, recovery, backing_off, may_request, may_restore, lambda: before if verb else None
    )


OFF, ON, SUSPEND = {"power": "Off"}, {"power": "On"}, {"suspend": True}
OPENED_REPAIR = {"operation": REPAIRING, "verb": "replace-node", "ended": "Failed"}
APART = Observed(BOTH, joined(ONE))


@pytest.mark.parametrize(
    ("sentence", "situation", "step"),
    [
        ("what is deleted is, whatever else it lacks", seen("Deleting", NOTHING, LOST), NextStep.DELETE),
        # Suspended.
        ("one that was giving its nodes back", seen("Suspending"), NextStep.SUSPEND),
        ("one that waits and is to have nothing", seen("Pending", NOTHING, spec=SUSPEND), NextStep.SUSPEND),
        ("one that has nothing, as it is to", seen("Suspended", NOTHING, spec=SUSPEND), NextStep.WAIT),
        ("one that is to have nodes again", seen("Suspended", NOTHING), NextStep.CREATE),
        # Waiting for nodes.
        ("a new one", seen("Pending", NOTHING), NextStep.CREATE),
        ("one that was being created", seen("Provisioning", NOTHING), NextStep.CREATE),
        ("one that was just refused", seen("Pending", NOTHING, retry_at=40.0, backing_off=True), NextStep.WAIT),
        ("one that waits while it is another's turn", seen("Pending", NOTHING, retry_at=40.0), NextStep.WAIT),
        ("one whose turn it is", seen("Pending", NOTHING, retry_at=40.0, may_request=True), NextStep.CREATE),
        ("one whose refusal was final", seen("Pending", NOTHING, retry_at=inf, backing_off=True), NextStep.WAIT),
        # Failed.
        ("one that has Failed for good", seen("Failed", NOTHING), NextStep.WAIT),
        ("one below its floor", seen("Failed", recovery=LOST, **OPENED_REPAIR), NextStep.REPAIR_BELOW_FLOOR),
        ("one below its floor that was just refused", seen("Failed", recovery=LOST, backing_off=True, retry_at=40.0, **OPENED_REPAIR), NextStep.WAIT),
        ("one below its floor of which too much is lost", seen("Failed", recovery=STOPPED, **OPENED_REPAIR), NextStep.WAIT),
        ("one below its floor whose member is back", seen("Failed", **OPENED_REPAIR), NextStep.CHANGE),
        ("one below its floor that is to be off", seen("Failed", recovery=LOST, spec=OFF, changed=True, **OPENED_REPAIR), NextStep.CHANGE),
        ("one below its floor that is to be what is left of it", seen("Failed", Observed(allocation(member(ONE), member(TWO, agent="Lost")), ()), LOST, spec={"nodes": 1}, changed=True, **OPENED_REPAIR), NextStep.CHANGE),
        ("one below its floor that is to be larger", seen("Failed", recovery=LOST, spec={"nodes": 3}, changed=True, **OPENED_REPAIR), NextStep.REPAIR_BELOW_FLOOR),
        # Stopped.
        ("one that is off, as it is to be", seen("Stopped", spec=OFF, recovery=LOST), NextStep.SETTLE),
        ("one that is to start", seen("Stopped", spec=ON, changed=True), NextStep.CHANGE),
        ("one that is to start and lacks a node", seen("Stopped", recovery=LOST, spec=ON, changed=True), NextStep.START),
        # Something failed.
        ("too much at once", seen("Active", recovery=STOPPED), NextStep.HOLD),
        ("too much at once, and it is to be off", seen("Active", recovery=STOPPED, spec=OFF, changed=True), NextStep.CHANGE),
        ("too much at once, and it is to be what is left of it", seen("Active", recovery=STOPPED, spec={"nodes": 1}, changed=True), NextStep.CHANGE),
        ("too much at once, and it is to be larger", seen("Active", recovery=STOPPED, spec={"nodes": 3}, changed=True), NextStep.HOLD),
        ("too much at once, and it is not to start", seen("Stopped", Observed(allocation(member(ONE), member(TWO, agent="Lost"), power="Off"), ()), STOPPED, spec=ON, applied={"nodes": 2} | OFF, changed=True), NextStep.HOLD),
        ("too much at once, and being off was refused", seen("Active", recovery=STOPPED, spec=OFF, changed=True, refused=True), NextStep.HOLD),
        ("a lost member", seen("Active", recovery=LOST), NextStep.REPAIR),
        ("a member that is repaired where it is", seen("Active", recovery=RESET), NextStep.REPAIR),
        ("a lost spare", seen("Active", WITH_SPARE, SPARE_LOST), NextStep.REPLACE_SPARES),
        ("a lost member whose repair was just refused", seen("Active", recovery=LOST, backing_off=True, **OPENED_REPAIR), NextStep.WAIT),
        ("a lost member while a change of shape rests", seen("Active", recovery=LOST, backing_off=True, changed=True), NextStep.REPAIR),
        ("a lost member whose forgotten repair was refused", seen("Active", recovery=LOST, backing_off=True, operation=REPAIRING, verb=""), NextStep.WAIT),
        ("a lost member after a repair that ended well", seen("Active", recovery=LOST, backing_off=True, operation=REPAIRING, verb="replace-node"), NextStep.REPAIR),
        # A workflow ended without a word.
        *((f"one that was {state}", seen(state), NextStep.RESUME) for state in ("Updating", "Repairing", "Stopping", "Starting")),
        # It has its nodes.
        ("nothing is wrong", seen("Active"), NextStep.SETTLE),
        ("another spec", seen("Active", spec={"nodes": 3}, changed=True), NextStep.CHANGE),
        ("its nodes are gone", seen("Active", NOTHING), NextStep.CHANGE),
        ("its slices are gone", seen("Active", APART), NextStep.CHANGE),
        ("its nodes are off", seen("Active", Observed(allocation(member(ONE), member(TWO), power="Off"), joined(ONE, TWO))), NextStep.CHANGE),
        ("a move that was abandoned", seen("Active", Observed(allocation(member(ONE), member(TWO), member(SPARE, "successor")), joined(ONE, TWO))), NextStep.FINISH_MOVE),
        ("it goes without a member", seen("Active", Observed(allocation(member(ONE)), joined(ONE))), NextStep.RESTORE_MEMBERS),
        ("it goes without a member, which was just refused", seen("Active", Observed(allocation(member(ONE)), joined(ONE)), may_restore=False), NextStep.SETTLE),
        # A changed spec was refused.
        ("a spec that was refused for good", seen("Active", changed=True, refused=True), NextStep.WAIT),
        ("a spec that was refused, and slices are gone", seen("Active", APART, changed=True, refused=True), NextStep.RESTORE_SLICES),
        ("a change that rests, and slices are gone", seen("Active", APART, changed=True, backing_off=True), NextStep.RESTORE_SLICES),
        ("a change that rests, and slices are going", seen("Active", Observed(BOTH, joined(ONE, state="Withdrawing")), changed=True, backing_off=True), NextStep.WAIT),
        ("slices that were just refused", seen("Active", APART, changed=True, backing_off=True, verb="restore-slices", ended="Failed"), NextStep.WAIT),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_next_step(sentence: str, situation: Situation, step: NextStep) -> None:
    assert next_step(situation) is step


def test_every_next_step_has_a_case() -> None:
    assert {row[2] for row in test_next_step.pytestmark[0].args[1]} == set(NextStep)
