"""The demo's cut cables: most UB cables of a decoding node are cut while the model serves, and repaired again.

What a step of decoding takes is measured before, while they are cut and after, and beside each figure stands what the
fabric says of it: MatrixLink's FabricView of the instance, put through the timing of the workload. The traffic
continues over the cables that are left, and nobody repairs anything: routes are moved, no node is replaced.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from services.matrixctl.demo.story import check, until
from services.matrixctl.demo.telling import PATIENCE_WALL_S, Telling
from services.matrixctl.output.screen import say

CUT = {"demo-cables-a": "ub-p?-k0[1-9]", "demo-cables-b": "ub-p?-k1?"}
"""Fifteen of the sixteen cables of each sub-plane: the most that the incumbent calls no fault of the node."""
SETTLING_WALL_S = 2.0
"""Two minutes of the demo's time: requests that began under the other fabric are done."""
MEASURING_WALL_S, LOOKS_AT_LEAST = 2.5, 5
"""As long, and longer where a busy machine answers late, or where decoding stands still for a while."""
AGREES_WITHIN, FELT_FROM = 0.15, 1.03
"""Measured and predicted change agree this well; and a cut has to be felt to be worth showing."""


@dataclass(frozen=True)
class Pace:
    """Means over a while: a step as measured and as the fabric says, ms, and the tokens one request gets a second."""

    step_ms: float
    predicted_ms: float
    tokens_per_s: float

    def text(self) -> str:
        return (
            f"{self.step_ms:.1f} ms a step (the fabric says {self.predicted_ms:.1f}), {self.tokens_per_s:.0f} tokens/s"
        )


def cut_cables(demo: Telling) -> None:
    deployment = demo.reach.call("infer", "GET", f"/v1/deployments/{demo.name}")
    decoding = sorted(node for node, role in deployment["roles"].items() if role == "decode")
    node = decoding[0]
    before = measured(demo)
    say(f"   before: {before.text()}")
    for name, ports in CUT.items():
        demo.break_hardware(name, "link-down", node, port=ports)
    say(
        f"   [bold]$ matrixctl fault inject link-down '{node}/{CUT['demo-cables-b']}'[/], and so on: 105 cables are cut"
    )
    try:
        until("routes go round the cut", lambda: ub_state(demo) == "Degraded", PATIENCE_WALL_S)
        during = measured(demo)
        say(f"   cut: {during.text()}; {node} is still a member")
    finally:
        demo.repair_hardware(*CUT)
    until("routes go back", lambda: ub_state(demo) == "Active", PATIENCE_WALL_S)
    after = measured(demo)
    say(f"   repaired: {after.text()}")
    slower, reported = during.step_ms / before.step_ms, during.predicted_ms / before.predicted_ms
    say(f"   {slower - 1:+.0%} measured, {reported - 1:+.0%} reported by the fabric")
    check(slower >= FELT_FROM, f"a step took {slower:.2f} times as long with the cables cut; is it measured?")
    check(abs(slower / reported - 1) <= AGREES_WITHIN, f"{slower:.2f} times as long, the fabric says {reported:.2f}")
    back = after.step_ms / before.step_ms / (after.predicted_ms / before.predicted_ms)
    check(abs(back - 1) <= AGREES_WITHIN, f"repaired, a step takes {back:.2f} times what it should")


def ub_state(demo: Telling) -> str:
    return next((str(view["state"]) for view in demo.slices() if view["plane"] == "ub"), "")


def measured(demo: Telling) -> Pace:
    """The pace of a while that begins once the model serves over the present fabric and what was before is done."""
    instance = next(str(view["instance"]) for view in demo.slices())

    def taken_up() -> bool:
        there = demo.reach.call("link", "GET", f"/v1/fabric-views/{instance}")["generation"]
        served = demo.reach.call("infer", "GET", f"/v1/deployments/{demo.name}")
        return bool(served["fabricGeneration"] >= there)

    until("the model serves over the fabric as it is", taken_up, PATIENCE_WALL_S)
    time.sleep(SETTLING_WALL_S)
    roles = demo.reach.call("infer", "GET", f"/v1/deployments/{demo.name}")["roles"]

    def step() -> tuple[float, float] | None:
        """What a step takes now, and what the fabric makes of it, ms; None while none is measured."""
        current = demo.statistics()
        step_ms, batch = current["decodeStepMs"], current["decodeBatchPerNpu"]  # None while a node is not reached
        if step_ms is None or not batch or current["decodePaused"]:
            return None
        return step_ms, predicted_ms(demo, instance, roles, batch)

    def settled() -> bool:  # on a busy machine the model is behind, and what was before still decodes
        current = step()
        return current is not None and abs(current[0] / current[1] - 1) <= AGREES_WITHIN

    until("a step takes what the fabric says", settled, PATIENCE_WALL_S)
    began, seen, reported = time.monotonic(), list[float](), list[float]()

    def enough() -> bool:
        if (current := step()) is not None:
            seen.append(current[0])
            reported.append(current[1])
        return time.monotonic() - began >= MEASURING_WALL_S and len(seen) >= LOOKS_AT_LEAST

    until("decoding is measured", enough, PATIENCE_WALL_S, progress=lambda: f"{len(seen)} steps seen")
    step_ms = sum(seen) / len(seen)
    return Pace(step_ms, sum(reported) / len(reported), 1e3 * tokens_per_step() / step_ms)


def predicted_ms(demo: Telling, instance: str, roles: dict[str, str], batch_per_npu: float) -> float:
    """What the fabric makes of a step now."""
    from infer_workload.layout.prediction import decode_step_s
    from matrixlink.contract.slices import FabricView

    view = FabricView.model_validate(demo.reach.call("link", "GET", f"/v1/fabric-views/{instance}"))
    return 1e3 * decode_step_s(view, roles, batch_per_npu)


def tokens_per_step() -> float:
    """Tokens that a request gains in a step on average, with multi-token prediction."""
    from infer_workload.timing.calibration import load_calibration

    return 1.0 + load_calibration().mtp_acceptance
