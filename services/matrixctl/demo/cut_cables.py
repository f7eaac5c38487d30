"""The demo's cut cables: most UB cables of a decode node are cut while the model serves, and repaired again.

The time of a decode step is measured before, during and after the cut, and compared with the prediction of the fabric
model: the workload's timing on MatrixLink's FabricView of the instance. Traffic continues over the remaining cables,
and no repair is started: routes are moved, no node is replaced.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from services.matrixctl.demo.shared_steps import TIMEOUT_WALL_S, DemoRun
from services.matrixctl.demo.step_runner import check, wait_until
from services.matrixctl.output.screen import echo

CUT_PORTS = {"demo-cables-a": "ub-p?-k0[1-9]", "demo-cables-b": "ub-p?-k1?"}
"""Fifteen of the sixteen cables of each sub-plane: the most that MindCluster does not treat as a fault of the node."""
SETTLING_WALL_S = 2.0
"""Two minutes of emulated time, after which requests that began on the previous fabric have finished."""
MEASURING_WALL_S, SAMPLES_MIN = 2.5, 5
"""Measured for this long at least, and longer if a busy machine answers late or decoding pauses."""
AGREES_WITHIN, NOTICEABLE_FROM = 0.15, 1.03
"""How closely measured and predicted change must agree; and the slowdown from which a cut counts as noticeable."""


@dataclass(frozen=True)
class DecodePace:
    """Means over an interval: step time as measured and as predicted, ms, and tokens per second of one request."""

    step_ms: float
    predicted_ms: float
    tokens_per_s: float

    def text(self) -> str:
        return (
            f"{self.step_ms:.1f} ms per step (the fabric model says {self.predicted_ms:.1f}), "
            f"{self.tokens_per_s:.0f} tokens/s"
        )


def cut_cables(demo: DemoRun) -> None:
    deployment = demo.client.call("infer", "GET", f"/v1/deployments/{demo.name}")
    decoding = sorted(node for node, role in deployment["roles"].items() if role == "decode")
    node = decoding[0]
    before = measure_pace(demo)
    echo(f"   before: {before.text()}")
    for name, ports in CUT_PORTS.items():
        demo.break_hardware(name, "link-down", node, port=ports)
    ports = CUT_PORTS["demo-cables-b"]
    echo(f"   [bold]$ matrixctl fault inject link-down '{node}/{ports}'[/], and so on: 105 cables are cut")
    try:
        wait_until("routes avoid the cut cables", lambda: ub_state(demo) == "Degraded", TIMEOUT_WALL_S)
        during = measure_pace(demo)
        echo(f"   cut: {during.text()}; {node} is still a member")
    finally:
        demo.repair_hardware(*CUT_PORTS)
    wait_until("routes return", lambda: ub_state(demo) == "Active", TIMEOUT_WALL_S)
    after = measure_pace(demo)
    echo(f"   repaired: {after.text()}")
    slower, reported = during.step_ms / before.step_ms, during.predicted_ms / before.predicted_ms
    echo(f"   {slower - 1:+.0%} measured, {reported - 1:+.0%} predicted by the fabric model")
    check(
        slower >= NOTICEABLE_FROM,
        f"a step took only {slower:.2f} times as long with the cables cut: the measurement is suspect",
    )
    check(
        abs(slower / reported - 1) <= AGREES_WITHIN, f"{slower:.2f} times as long, the fabric model says {reported:.2f}"
    )
    back = after.step_ms / before.step_ms / (after.predicted_ms / before.predicted_ms)
    check(abs(back - 1) <= AGREES_WITHIN, f"after the repair a step takes {back:.2f} times what it should")


def ub_state(demo: DemoRun) -> str:
    return next((str(view["state"]) for view in demo.slices() if view["plane"] == "ub"), "")


def measure_pace(demo: DemoRun) -> DecodePace:
    """The pace over an interval that starts once the model uses the present fabric and earlier steps have finished."""
    instance = next(str(view["instance"]) for view in demo.slices())

    def uses_present_fabric() -> bool:
        there = demo.client.call("link", "GET", f"/v1/fabric-views/{instance}")["generation"]
        served = demo.client.call("infer", "GET", f"/v1/deployments/{demo.name}")
        return bool(served["fabricGeneration"] >= there)

    wait_until("the model uses the present fabric", uses_present_fabric, TIMEOUT_WALL_S)
    time.sleep(SETTLING_WALL_S)
    roles = demo.client.call("infer", "GET", f"/v1/deployments/{demo.name}")["roles"]

    def step() -> tuple[float, float] | None:
        """Measured and predicted time of a step now, ms; None while there is no measurement."""
        current = demo.statistics()
        step_ms, batch = current["decodeStepMs"], current["decodeBatchPerNpu"]  # None while a node is not reached
        if step_ms is None or not batch or current["decodePaused"]:
            return None
        return step_ms, predicted_ms(demo, instance, roles, batch)

    def settled() -> bool:  # on a busy machine the model lags, and earlier batches still decode
        current = step()
        return current is not None and abs(current[0] / current[1] - 1) <= AGREES_WITHIN

    wait_until("steps take as long as the fabric model says", settled, TIMEOUT_WALL_S)
    began, seen, reported = time.monotonic(), list[float](), list[float]()

    def enough() -> bool:
        nonlocal began
        if (current := step()) is not None:
            seen.append(current[0])
            reported.append(current[1])
        if time.monotonic() - began < MEASURING_WALL_S or len(seen) < SAMPLES_MIN:
            return False
        if abs(sum(seen) / sum(reported) - 1) <= AGREES_WITHIN:
            return True
        # A backlog was decoded meanwhile: the measured step lags behind the batch it is compared for.
        began = time.monotonic()
        seen.clear()
        reported.clear()
        return False

    wait_until("decoding is measured", enough, TIMEOUT_WALL_S, progress=lambda: f"{len(seen)} steps seen")
    step_ms = sum(seen) / len(seen)
    return DecodePace(step_ms, sum(reported) / len(reported), 1e3 * tokens_per_step() / step_ms)


def predicted_ms(demo: DemoRun, instance: str, roles: dict[str, str], batch_per_npu: float) -> float:
    """The fabric model's prediction of a step now, ms."""
    from infer_workload.layout.prediction import decode_step_s
    from matrixlink.contract.slices import FabricView

    view = FabricView.model_validate(demo.client.call("link", "GET", f"/v1/fabric-views/{instance}"))
    return 1e3 * decode_step_s(view, roles, batch_per_npu)


def tokens_per_step() -> float:
    """Mean tokens per request and step, with multi-token prediction."""
    from infer_workload.timing.calibration import load_calibration

    return 1.0 + load_calibration().mtp_acceptance
