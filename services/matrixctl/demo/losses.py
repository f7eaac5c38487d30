"""The demo's larger losses: a whole cabinet and a second-level switch, each under load.

Each step prints who noticed it and when, in emulated time, what was served meanwhile, and what happened to the
requests: none may be lost or truncated. The control plane learns of the losses only from agents and ports.
"""

from __future__ import annotations

from dataclasses import dataclass

from matrixcommon.model.quantities import format_duration
from services.matrixctl.demo.shared_steps import TIMEOUT_WALL_S, DemoRun
from services.matrixctl.demo.step_runner import check, wait_until
from services.matrixctl.output.columns import value_at
from services.matrixctl.output.screen import echo

CABINET_FAULT, SWITCH_FAULT = "demo-cabinet-power", "demo-switch-down"
SILENT_STATES = ("Stale", "Lost")
COUNTED_OUTCOMES = ("finished", "cancelled", "lost", "requeued")


def lose_a_cabinet(demo: DemoRun) -> None:
    """All nodes of a cabinet lose power at once; the members among them are replaced while the model keeps serving."""
    before = counts(demo)
    cabinet, members = _fullest_cabinet(demo)
    demo.break_hardware(CABINET_FAULT, "cabinet-power", cabinet)
    lost_at = demo.gauge.mark("x", "cabinet dark")
    echo(f"   {cabinet} is powered off, {len(members)} of its nodes are members; the control plane is not told")
    try:
        noticed: dict[str, float] = {}

        def all_noticed() -> bool:
            for node in demo.client.list("resource", "/v1/nodes"):
                if node["name"].startswith(f"{cabinet}-") and node["agent"] in SILENT_STATES:
                    noticed.setdefault(node["name"], demo.gauge.now())
            return members <= noticed.keys()

        wait_until("its agents fall silent", all_noticed, TIMEOUT_WALL_S, progress=lambda: f"{len(noticed)} silent")
        first = format_duration(min(noticed.values()) - lost_at)
        last = format_duration(max(noticed.values()) - lost_at)
        echo(f"   MatrixResource noticed the first after {first}, the last after {last}")
        nodes = value_at(demo.instance(), "spec.nodes")

        def replaced() -> bool:
            names = {member["node"] for member in demo.members()}
            return bool(names) and not names & members and demo.active(nodes)

        wait_until("replacing the lost members", replaced, TIMEOUT_WALL_S, progress=demo.progress)
        healed = demo.gauge.mark("h", "healed") - lost_at
        echo(f"   all {nodes} nodes are ready elsewhere, {format_duration(healed)} after the loss")
        print_served(demo, before)
    finally:
        demo.repair_hardware(CABINET_FAULT)


def lose_a_switch(demo: DemoRun) -> None:
    """A second-level UB switch goes down: it carries one of many sub-planes, so routes move and no node is replaced."""
    before, members = counts(demo), {member["node"] for member in demo.members()}
    switches = demo.client.list("link", "/v1/switches")
    switch = min(each["name"] for each in switches if each["plane"] == "ub" and each["kind"] == "l2")
    promised = {view["plane"]: view["state"] for view in demo.slices()}
    check(set(promised.values()) == {"Active"}, f"before the loss the slices are {promised}")
    demo.break_hardware(SWITCH_FAULT, "switch-down", switch)
    lost_at = demo.gauge.mark("x", "switch dark")
    echo(f"   {switch} is down; the control plane is not told")
    try:

        def state() -> str:
            return str(demo.client.call("link", "GET", f"/v1/switches/{switch}")["state"])

        wait_until("its ports are reported down", lambda: state() != "Up", TIMEOUT_WALL_S)
        echo(f"   MatrixLink reports it {state()} after {format_duration(demo.gauge.now() - lost_at)}")

        def moved() -> bool:
            return all(view["state"] in ("Active", "Degraded") for view in demo.slices())

        wait_until("routes move", moved, TIMEOUT_WALL_S)
        wait_until("a minute of serving without it", lambda: demo.gauge.now() - lost_at > 60.0, TIMEOUT_WALL_S)
        current = {member["node"] for member in demo.members()}
        check(current == members, f"members changed because of a switch: {sorted(members ^ current)}")
        echo("   no member was replaced; slices: " + ", ".join(f"{v['plane']} {v['state']}" for v in demo.slices()))
        print_served(demo, before)
    finally:
        demo.repair_hardware(SWITCH_FAULT)

    def back() -> bool:
        return state() == "Up" and all(view["state"] == "Active" for view in demo.slices())

    wait_until("the switch comes back", back, TIMEOUT_WALL_S)


@dataclass(frozen=True)
class Counts:
    """Outcomes of requests up to a moment: emulated seconds, and a count for each word of `COUNTED_OUTCOMES`."""

    at: float
    since: float
    requests: dict[str, int]

    def difference(self, before: Counts) -> dict[str, int]:
        """Counts since `before`; all of them if the endpoint restarted meanwhile and counts from zero."""
        if self.since != before.since:
            return self.requests
        return {word: count - before.requests[word] for word, count in self.requests.items()}


def counts(demo: DemoRun) -> Counts:
    view = demo.statistics()
    return Counts(demo.gauge.now(), view["countingSince"], {word: view[word] for word in COUNTED_OUTCOMES})


def print_served(demo: DemoRun, before: Counts) -> None:
    """Print what was served since then. Raises StepFailed if a request was lost or truncated."""
    now = counts(demo)
    fresh = now.difference(before)
    check(fresh["lost"] == fresh["cancelled"] == 0, f"requests were lost or truncated: {fresh}")
    check(fresh["finished"] > 0, "no request finished meanwhile: the model may not be serving")
    echo(
        f"   in {format_duration(now.at - before.at)} {fresh['finished']} requests finished, none was lost;"
        f" {fresh['requeued']} were restarted elsewhere"
    )


def _fullest_cabinet(demo: DemoRun) -> tuple[str, set[str]]:
    """The cabinet with the most members of the instance, and those members."""
    found: dict[str, set[str]] = {}
    for member in demo.members():
        found.setdefault(member["node"].rpartition("-")[0], set()).add(member["node"])
    cabinet = max(sorted(found), key=lambda name: len(found[name]))
    return cabinet, found[cabinet]
