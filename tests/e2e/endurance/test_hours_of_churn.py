"""A stack of real processes under churn with faults, for two hours: memory flat, no orphan, no file without bound,
and no error in any log.

`SOAK_SECONDS` says how long (two hours unless told), `SOAK_SEED` which day, `SOAK_PAUSE_SECONDS` how long to wait between
two requests. Slopes are printed as they come; services keep what happened in the last hour, so that those of a run of less
than two hours say how that fills and not whether it grows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from services.matrixctl.supervisor.up import stop_stack
from tests.e2e.conftest import RealStack, eventually
from tests.e2e.endurance.churn import SERVED, Churn
from tests.e2e.endurance.error_lines import ErrorLines
from tests.e2e.endurance.gauges import Gauges

SECONDS = float(os.environ.get("SOAK_SECONDS", "7200"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
SAMPLE_PERIOD_WALL_S = 20.0
AUDIT_EVERY_WALL_S = 120.0
PAUSE_WALL_S = float(os.environ.get("SOAK_PAUSE_SECONDS", "0.2"))
SLOPE_MIB_PER_H = 8.0
"""More than this an hour is no flat memory: a process of 100 MiB would be twice as large within a day."""
FILE_SLACK_MIB = 4.0

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(SECONDS + 1200)]

SERVED_MANIFEST = f"""\
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {{name: {SERVED}}}
spec: {{nodes: 3, spares: 1}}
---
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInfer
metadata: {{name: {SERVED}}}
spec: {{instance: {SERVED}}}
"""


def settled(stack: RealStack, allocated: Collection[str]) -> None:
    wrong: list[str] = []

    def nothing_is_wrong() -> bool:
        wrong[:] = stack.violated_invariants(allocated)
        return not wrong

    try:
        eventually(nothing_is_wrong, "nothing is held twice or by nobody", 60.0)
    except AssertionError as late:
        raise AssertionError("; ".join(wrong[:5]) or str(late)) from None


def test_memory_and_files_stay_bounded_under_churn(tmp_path: Path) -> None:
    stack = RealStack(tmp_path / "state")
    stack.up()
    try:
        manifest = tmp_path / "served.yaml"
        manifest.write_text(SERVED_MANIFEST)
        eventually(lambda: stack.cluster.apply(manifest), "applied")
        eventually(lambda: stack.active(SERVED), "the served instance is active")
        churn, gauges, errors = Churn(stack, SEED), Gauges(stack.folder), ErrorLines(stack.folder.logs)
        begun = time.monotonic()
        look_at = audit_at = begun
        while (now := time.monotonic()) < begun + SECONDS:
            churn.step()
            if now >= look_at:
                gauges.sample(now - begun)
                errors.look()
                look_at = now + SAMPLE_PERIOD_WALL_S
            if now >= audit_at:
                settled(stack, churn.allocations)
                print(
                    f"{now - begun:6.0f} s: {churn.tally.line()}",
                    *gauges.report(),
                    *churn.tally.errors[-5:],
                    *errors.found[-5:],
                    sep="\n",
                    flush=True,
                )
                audit_at = now + AUDIT_EVERY_WALL_S
            time.sleep(PAUSE_WALL_S)  # the pace of the churn, not a wait for anything
        churn.leave()
        manifest_gone = stack.cluster.delete(manifest)
        assert manifest_gone
        gone = [("compute", "/v1/instances"), ("resource", "/v1/allocations"), ("link", "/v1/slices")]
        for service, path in gone:
            eventually(lambda: not stack.client.list(service, path), f"nothing left in {service}{path}")  # noqa: B023
        eventually(lambda: not stack.cluster.items("/api/v1/namespaces/default/pods"), "no pod left")
        eventually(stack.all_nodes_free, "every node is free again")
        settled(stack, churn.allocations)
        print(churn.tally.line(), dict(churn.tally.actions), *gauges.report(), sep="\n", flush=True)
        errors.look()
        assert not churn.tally.errors, churn.tally.errors[:10]
        died = {name: pids for name, pids in gauges.pids.items() if len(pids) > 1}
        assert not died, f"started again: {died}"
        assert not gauges.growing(SLOPE_MIB_PER_H, FILE_SLACK_MIB)
        assert not errors.found, "\n".join(errors.found[:10])
    finally:
        stop_stack(stack.folder)
