"""Whatever is asked of MatrixResource, whatever happens to its nodes and to itself: nothing is held twice, everything
that is held is what was asked, promises and quotas are kept, and what was refused or only tried changed nothing.

After every step the tables are counted by die, socket and GiB, and the ledger compared with books made anew.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from pydantic import ValidationError

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import parse_timestamp, timestamp
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.quotas import QuotaRequest
from matrixresource.contract.reservations import ReservationRequest
from tests.matrixresource.accounting import Accounting, projects_above_quota, table_contents
from tests.matrixresource.machine import Machine

OPEN = ("sn0-c00", "sn0-c01", "sn0-c02", "sn1-c00", "sn1-c01")
"""The cabinets that take anybody at the start: few, so that requests stand in one another's way."""

NODES = [f"{cabinet}-n{number}" for cabinet in OPEN for number in range(4)]
FAULTS = [("80C98000", "npu1"), ("020001001", "npu5-die1"), ("81078603", "npu2"), ("110001010", "node"), ("x", "node")]

ANY = st.integers(0, 99)
"""Which of those there are, counted round."""

SIZES = st.one_of(
    st.builds(lambda n: {"nodes": n}, st.integers(1, 9)),
    st.builds(lambda n: {"npus": n}, st.sampled_from([0.5, 1, 2, 3, 4, 6, 8, 12, 24])),
    st.builds(lambda n, per: {"nodes": n, "npusPerNode": per}, st.integers(1, 5), st.sampled_from([0.5, 1, 2, 4])),
    st.builds(lambda c, m: {"cpus": c, "memoryGib": m}, st.integers(1, 40), st.integers(0, 9000)),
)
AMOUNTS = st.fixed_dictionaries({}, optional={"cpus": st.integers(0, 6), "memoryGib": st.integers(0, 3000)})
PLACEMENTS = st.one_of(
    st.fixed_dictionaries(
        {"policy": st.sampled_from(["pack", "spread"]), "level": st.sampled_from(["cabinet", "supernode"])},
        optional={"required": st.booleans()},
    ),
    st.builds(lambda n: {"policy": "spread", "maxPerDomain": n, "required": True}, st.integers(1, 3)),
    st.builds(
        lambda n, level: {"blocks": [{"nodes": n, "level": level}]},
        st.integers(2, 4),
        st.sampled_from(["cabinet", "supernode"]),
    ),
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "placement": PLACEMENTS,
        "priority": st.integers(0, 3),
        "preemption": st.sampled_from(["Never", "LowerPriority"]),
        "leaseS": st.sampled_from([50, 200, 1000]),
        "project": st.sampled_from(["red", "blue"]),
        "excludeNodes": st.lists(st.sampled_from(NODES), min_size=1, max_size=4),
    },
)


@cache
def begun() -> Path:
    """A database of two supernodes with few cabinets open, made once and copied for every life."""
    folder = Path(tempfile.mkdtemp(prefix="allocator-lives-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    machine = Machine(folder, supernodes=2)
    for supernode in ("sn0", "sn1"):
        for number in range(12):
            if f"{supernode}-c{number:02d}" not in OPEN:
                machine.topology_manager.close(f"{supernode}-c{number:02d}", by="test")
    machine.database.close()
    return folder


ACTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {}
"""What may happen, by the name of its method, and with what."""


def action(**arguments: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One of the things that may happen. Not rules each: of many rules Hypothesis leaves out half in every life, and
    what goes wrong here takes several of them together."""

    def noted(method: Callable[..., None]) -> Callable[..., None]:
        ACTIONS[method.__name__] = arguments
        return method

    return noted


class Lives(RuleBasedStateMachine):
    """Random lives of the service, its owners and its agents."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="allocator-life-"))
        for file in begun().iterdir():
            shutil.copy(file, self.folder)
        self.machine = Machine(self.folder, supernodes=0)
        self.made = 0
        self.faults: dict[str, list[tuple[str, str]]] = {}
        self.used: dict[str, Counter[str]] = {}
        self.silent: set[str] = set()

    def teardown(self) -> None:
        self.machine.database.close()
        shutil.rmtree(self.folder)

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(ACTIONS)))
        getattr(self, name)(**{key: data.draw(each, key) for key, each in ACTIONS[name].items()})

    @initialize(sizes=st.lists(st.tuples(SIZES, RULES, st.booleans()), min_size=2, max_size=7))
    def begin_with(self, sizes: list[tuple[Any, Any, bool]]) -> None:
        """Some are there already, most of them served."""
        for size, rules, bound in sizes:
            name = self.name()
            if self.ask(name, **size | rules) is not None and bound:
                self.machine.allocator.bind(name)
        self.machine.report_all()

    def one(self, which: int) -> str:
        """One of the allocations there are; a name of nobody where there is none."""
        names = self.machine.names() or ["nobody"]
        return names[which % len(names)]

    def a_promise(self, which: int, *states: str) -> str:
        """One of the reservations, in one of these states if there is any."""
        views = self.machine.reservations()
        names = [view.name for view in views if view.state in states] or [view.name for view in views] or ["nobody"]
        return names[which % len(names)]

    def name(self) -> str:
        self.made += 1
        return f"a{self.made}"

    def attempt(self, verb: Callable[..., Any], *args: Any, changes: bool = True, **more: Any) -> Any:
        """What the verb returns, None when it refuses; a refusal and a trial change nothing."""
        before, answer, refused = self.declared(), None, None
        try:
            answer = verb(*args, **more)
        except MatrixError as error:
            refused = error
        assert " is held by " not in str(refused), f"the ledger were wrong: {refused}"
        if refused is not None or not changes:
            assert self.declared() == before, f"tried or refused ({refused}), and changed something"
        return answer

    def ask(self, name: str, *, dry: bool = False, **desired: Any) -> Any:
        """Reserve what can be reported at all."""
        try:
            request = AllocationRequest.model_validate(desired)
        except ValidationError:
            return None
        return self.attempt(self.machine.allocator.reserve, name, request, validate_only=dry, changes=not dry)

    def declared(self) -> dict[str, Any]:
        with self.machine.store.reading() as session:
            return table_contents(session)

    @invariant()
    def it_adds_up(self) -> None:
        self.machine.check()
        with self.machine.store.reading() as session:
            used = Accounting(session).used()
            assert not projects_above_quota(session, used, self.used_before(used))
        self.used = used

    def used_before(self, used: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
        return {project: self.used.get(project, Counter()) for project in {*used, "red", "blue", "default"}}

    # ---- owners

    @action(size=SIZES, more=AMOUNTS, rules=RULES, spares=st.sampled_from([0, 0, 0, 1, 2]))
    def reserve(self, size: Any, more: Any, rules: Any, spares: int) -> None:
        name, asked = self.name(), size | more | rules | ({"spares": spares} if "cpus" not in size else {})
        tried = self.ask(name, dry=True, **asked)
        taken = self.ask(name, **asked)
        assert (tried is None) == (taken is None)
        if taken is not None:
            assert [member.node for member in tried.members] == [member.node for member in taken.members]

    @action(
        size=SIZES,
        which=ANY,
        key=st.sampled_from(["affinity", "antiAffinity"]),
        level=st.sampled_from(["node", "cabinet", "supernode"]),
        required=st.booleans(),
    )
    def reserve_toward(self, size: Any, which: int, key: str, level: str, required: bool) -> None:
        name = self.name()
        toward = {"allocations": [self.one(which)], "level": level, "required": required}
        self.ask(name, **size, **{key: toward})

    @action(which=ANY)
    def bind(self, which: int) -> None:
        self.attempt(self.machine.allocator.bind, self.one(which))

    @action(which=ANY, size=SIZES, more=AMOUNTS, spares=st.sampled_from([None, 0, 1, 2]), dry=st.booleans())
    def resize(self, which: int, size: Any, more: Any, spares: int | None, dry: bool) -> None:
        """Grown, shrunk, or both at once, in what the size and the amounts name."""
        name = self.one(which)
        desired = self.spec(name)
        if desired is not None:
            if "npus" in size and desired.get("npusPerNode") is None and desired.get("npus") is None:
                size = {"nodes": -(-int(size["npus"]) // 8) or 1}
            keys = [key for key in ("nodes", "npus") if key in size and key in desired]
            asked = (
                desired | {key: size[key] for key in keys} | more | ({"spares": spares} if spares is not None else {})
            )
            self.ask(name, dry=dry, **asked)

    def spec(self, name: str) -> dict[str, Any] | None:
        with self.machine.store.reading() as session:
            row = next((row for row in self.machine.store.allocations(session) if row.name == name), None)
            return {k: v for k, v in row.request.items() if v is not None} if row is not None else None

    @action(which=ANY, placement=PLACEMENTS, exclude=st.lists(st.sampled_from(NODES), max_size=4), dry=st.booleans())
    def move(self, which: int, placement: Any, exclude: list[str], dry: bool) -> None:
        name = self.one(which)
        desired = self.spec(name)
        if desired is not None:
            request = AllocationRequest.model_validate(desired | {"placement": placement, "excludeNodes": exclude})
            self.attempt(self.machine.allocator.move, name, request, validate_only=dry, changes=not dry)

    @action(which=ANY, forward=st.booleans())
    def end_move(self, which: int, forward: bool) -> None:
        name = self.one(which)
        with self.machine.store.reading() as session:
            row = next((row for row in self.machine.store.allocations(session) if row.name == name), None)
            to = row.moving_to if row is not None else None
        if to is not None:
            if forward:
                self.attempt(self.machine.allocator.cut_over, name, AllocationRequest.model_validate(to))
            else:
                self.attempt(self.machine.allocator.abort_move, name)

    @action(which=ANY, node=st.integers(0, 8))
    def replace(self, which: int, node: int) -> None:
        name = self.one(which)
        members = self.members(name)
        if members:
            self.attempt(self.machine.allocator.replace, name, NodeName(members[node % len(members)]), "test")

    def members(self, name: str) -> list[str]:
        found = self.attempt(self.machine.allocation, name)
        return [member.node for member in found.members] if found is not None else []

    @action(which=ANY, lease_s=st.sampled_from([30, 300, 3000]))
    def renew(self, which: int, lease_s: float) -> None:
        self.attempt(self.machine.allocator.renew, self.one(which), lease_s)

    @action(which=ANY)
    def release(self, which: int) -> None:
        self.attempt(self.machine.allocator.release, self.one(which))

    # ---- reservations in time and quotas

    @action(
        size=SIZES,
        project=st.sampled_from(["red", "default"]),
        after_s=st.sampled_from([20, 100, 500]),
        lasts_s=st.sampled_from([50, 400]),
        spares=st.sampled_from([0, 0, 1]),
    )
    def promise(self, size: Any, project: str, after_s: float, lasts_s: float, spares: int) -> None:
        name = self.name()
        request = {"startsAt": timestamp(self.machine.clock.at + after_s), "durationS": lasts_s, "project": project}
        asked = ReservationRequest.model_validate(size | request | ({"spares": spares} if "cpus" not in size else {}))
        put = self.machine.allocator.reservations.put
        dry_run = self.machine.store.records.dry_run
        self.attempt(dry_run, lambda: put(name, asked), changes=False)
        self.attempt(put, name, asked)

    @action(which=ANY, size=SIZES, project=st.sampled_from(["red", "default"]))
    def claim(self, which: int, size: Any, project: str) -> None:
        self.ask(self.name(), reservation=self.a_promise(which, "Active"), project=project, **size)

    @action(which=ANY)
    def give_up(self, which: int) -> None:
        self.attempt(self.machine.allocator.reservations.delete, self.a_promise(which, "Promised", "Waiting", "Ended"))

    @action(
        project=st.sampled_from(["red", "blue"]), npus=st.sampled_from([None, 16, 64]), cpus=st.sampled_from([None, 8])
    )
    def limit(self, project: str, npus: int | None, cpus: int | None) -> None:
        self.attempt(self.machine.quotas.put, project, QuotaRequest(npus=npus, cpus=cpus))

    # ---- time

    @action(by_s=st.sampled_from([1, 30, 120, 600]), seen=st.booleans())
    def time_continues(self, by_s: float, seen: bool) -> None:
        self.machine.clock.at += by_s
        if seen:
            self.what_is_due()

    @action(which=ANY)
    def the_start_of_a_reservation(self, which: int) -> None:
        starts = [row.starts_at for row in self.machine.reservations() if row.state == "Promised"]
        if starts:
            self.machine.clock.at = max(self.machine.clock.at, parse_timestamp(starts[which % len(starts)]) + 1)
            self.what_is_due()

    def what_is_due(self) -> None:
        self.machine.allocator.expire()
        self.machine.report_all(*self.silent, faults=self.faults)
        self.machine.allocator.reservations.reconcile()

    @action()
    def replenish(self) -> None:
        self.machine.allocator.replenish()

    # ---- nodes and their agents

    @action(status=st.sampled_from([None, None, None, "Cleaning", "Deploying"]))
    def agents_report(self, status: str | None) -> None:
        self.machine.report_all(*self.silent, faults=self.faults, status=status)

    @action(silent=st.sets(st.sampled_from(NODES), max_size=12))
    def some_agents_report(self, silent: set[str]) -> None:
        self.machine.report_all(*self.silent, *silent, faults=self.faults)

    @action(node=st.sampled_from(NODES), cabinet=st.booleans())
    def lose(self, node: str, cabinet: bool) -> None:
        """No more is heard of a node, or of its whole cabinet, and its lease ends."""
        gone = {each for each in NODES if each == node or (cabinet and each[:7] == node[:7])}
        others = {desired for desired in self.names() if desired not in gone}
        self.machine.report_all(*others, *self.silent, faults=self.faults, lease_s=0.1)
        self.silent |= gone
        self.machine.clock.at += 1
        asyncio.run(self.machine.reports.watch_leases())

    def names(self) -> list[str]:
        with self.machine.store.reading() as session:
            return [row.name for row in self.machine.store.nodes(session)]

    @action(again=st.booleans())
    def return_all(self, again: bool) -> None:
        """Who was silent is heard again, in a new life of its agent or the same one."""
        self.silent.clear()
        self.machine.epoch += again
        self.machine.report_all(faults=self.faults)

    @action(node=st.sampled_from(NODES), fault=st.sampled_from(FAULTS))
    def break_down(self, node: str, fault: tuple[str, str]) -> None:
        self.faults.setdefault(node, []).append(fault)
        self.machine.report_all(*self.silent, faults=self.faults)

    @action()
    def repair(self) -> None:
        self.faults.clear()

    @action(node=st.sampled_from(NODES), cordoned=st.booleans())
    def cordon(self, node: str, cordoned: bool) -> None:
        self.machine.allocator.cordon(NodeName(node), cordoned)

    @action(domain=st.sampled_from([*OPEN, "sn1"]), close=st.booleans())
    def close_or_open(self, domain: str, close: bool) -> None:
        self.attempt(
            self.machine.topology_manager.close if close else self.machine.topology_manager.open, domain, by="test"
        )

    # ---- the service itself

    @action()
    def restart(self) -> None:
        self.machine.restart()

    @action(size=SIZES)
    def die_before_the_commit(self, size: Any) -> None:
        """A transaction that comes to nothing at its last moment changes nothing, in the ledger either."""

        def fail(*_: Any) -> None:
            raise ConnectionError("cut off")

        followers = self.machine.store.records.before_commit
        before = self.declared()
        followers.append(fail)
        try:
            self.machine.reserve("never", **size)
        except (ConnectionError, MatrixError):
            pass
        finally:
            followers.remove(fail)
        assert self.declared() == before


def test_no_node_is_allocated_twice() -> None:
    # The same lives every time, reported as they are: new ones, made small, are what the soak is for.
    few = settings(
        max_examples=8,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Lives, settings=few)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_node_is_allocated_twice_in_long_runs() -> None:
    many = settings(max_examples=500, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Lives, settings=many)
