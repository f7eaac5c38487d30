"""The demo's larger losses: a whole cabinet and a switch of the second level, each under load.

Each says who noticed it and when, in emulated time, what was served meanwhile, and what became of the requests: none
may be lost or cut. The control plane learns of them by what agents and ports report.
"""

from __future__ import annotations

from dataclasses import dataclass

from matrixcommon.model.quantities import duration_text
from services.matrixctl.demo.story import check, until
from services.matrixctl.demo.telling import PATIENCE_WALL_S, Telling
from services.matrixctl.output.columns import dig
from services.matrixctl.output.screen import say

CABINET_FAULT, SWITCH_FAULT = "demo-cabinet-power", "demo-switch-down"
DARK = ("Stale", "Lost")
COUNTED = ("finished", "cancelled", "lost", "requeued")


def lose_a_cabinet(demo: Telling) -> None:
    """All nodes of a cabinet lose power at once; the members among them are replaced, and the model serves on."""
    before = counts(demo)
    cabinet, members = _fullest_cabinet(demo)
    demo.break_hardware(CABINET_FAULT, "cabinet-power", cabinet)
    lost_at = demo.gauge.mark("x", "cabinet dark")
    say(f"   power off for {cabinet}, {len(members)} of its nodes are members; nobody tells the control plane")
    try:
        noticed: dict[str, float] = {}

        def all_noticed() -> bool:
            for node in demo.reach.list("resource", "/v1/nodes"):
                if node["name"].startswith(f"{cabinet}-") and node["agent"] in DARK:
                    noticed.setdefault(node["name"], demo.gauge.now())
            return members <= noticed.keys()

        until("its agents fall silent", all_noticed, PATIENCE_WALL_S, progress=lambda: f"{len(noticed)} silent")
        first, last = min(noticed.values()) - lost_at, max(noticed.values()) - lost_at
        say(f"   MatrixResource missed the first after {duration_text(first)}, the last after {duration_text(last)}")
        nodes = dig(demo.instance(), "spec.nodes")

        def replaced() -> bool:
            names = {member["node"] for member in demo.members()}
            return bool(names) and not names & members and demo.active(nodes)

        until("replacing what was there", replaced, PATIENCE_WALL_S, progress=demo.progress)
        healed = demo.gauge.mark("h", "healed") - lost_at
        say(f"   all {nodes} nodes are ready elsewhere, {duration_text(healed)} after the loss")
        say_served(demo, before)
    finally:
        demo.repair_hardware(CABINET_FAULT)


def lose_a_switch(demo: Telling) -> None:
    """A UB switch of the second level goes dark: its plane is one of many, so routes move and no node is replaced."""
    before, members = counts(demo), {member["node"] for member in demo.members()}
    switches = demo.reach.list("link", "/v1/switches")
    switch = min(each["name"] for each in switches if each["plane"] == "ub" and each["kind"] == "l2")
    promised = {view["plane"]: view["state"] for view in demo.slices()}
    check(set(promised.values()) == {"Active"}, f"before the loss the slices are {promised}")
    demo.break_hardware(SWITCH_FAULT, "switch-down", switch)
    lost_at = demo.gauge.mark("x", "switch dark")
    say(f"   {switch} is dark; nobody tells the control plane")
    try:

        def state() -> str:
            return str(demo.reach.call("link", "GET", f"/v1/switches/{switch}")["state"])

        until("its ports are reported dark", lambda: state() != "Up", PATIENCE_WALL_S)
        say(f"   MatrixLink calls it {state()} after {duration_text(demo.gauge.now() - lost_at)}")

        def moved() -> bool:
            return all(view["state"] in ("Active", "Degraded") for view in demo.slices())

        until("routes move", moved, PATIENCE_WALL_S)
        until("a minute of serving without it", lambda: demo.gauge.now() - lost_at > 60.0, PATIENCE_WALL_S)
        current = {member["node"] for member in demo.members()}
        check(current == members, f"members changed for a switch: {sorted(members ^ current)}")
        say("   no member was replaced; slices: " + ", ".join(f"{v['plane']} {v['state']}" for v in demo.slices()))
        say_served(demo, before)
    finally:
        demo.repair_hardware(SWITCH_FAULT)

    def back() -> bool:
        return state() == "Up" and all(view["state"] == "Active" for view in demo.slices())

    until("the switch comes back", back, PATIENCE_WALL_S)


@dataclass(frozen=True)
class Counts:
    """What became of the requests up to a moment: emulated seconds, and how many by each word of `COUNTED`."""

    at: float
    since: float
    requests: dict[str, int]

    def fresh(self, before: Counts) -> dict[str, int]:
        """What came since; all of it where the endpoint was started again meanwhile, and counts anew."""
        if self.since != before.since:
            return self.requests
        return {word: count - before.requests[word] for word, count in self.requests.items()}


def counts(demo: Telling) -> Counts:
    view = demo.statistics()
    return Counts(demo.gauge.now(), view["countingSince"], {word: view[word] for word in COUNTED})


def say_served(demo: Telling, before: Counts) -> None:
    """What was served since then. Raises StepFailed where a request was lost or cut."""
    now = counts(demo)
    fresh = now.fresh(before)
    check(fresh["lost"] == fresh["cancelled"] == 0, f"requests were lost or cut: {fresh}")
    check(fresh["finished"] > 0, "no request finished meanwhile; is anything served?")
    say(
        f"   in {duration_text(now.at - before.at)} {fresh['finished']} requests finished, none was lost;"
        f" {fresh['requeued']} were begun again elsewhere"
    )


def _fullest_cabinet(demo: Telling) -> tuple[str, set[str]]:
    """The cabinet with the most members of the instance, and these."""
    found: dict[str, set[str]] = {}
    for member in demo.members():
        found.setdefault(member["node"].rpartition("-")[0], set()).add(member["node"])
    cabinet = max(sorted(found), key=lambda name: len(found[name]))
    return cabinet, found[cabinet]
