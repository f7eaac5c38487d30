"""The schema of fault scenarios, in the vocabulary of Chaos Toolkit (steady state, method, rollback) and of AWS FIS
(targets, selection modes, stop conditions).

The same document is a matrixctl file, a REST body (`/v1/scenarios`) and the spec of a MatrixFaultScenario. Parameters
are strings, because a structural schema of Kubernetes allows one type per value. Rules that span several fields are in
`checks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.model.validation import pattern_of
from matrixcompute.contract import InstanceShape

KIND = "MatrixFaultScenario"

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
Duration = Annotated[
    str,
    Field(pattern=pattern_of(r"^\d{1,7}(\.\d{1,3})?(ms|s|m|h)$", "a duration such as 500ms, 90s, 5m or 1.5h")),
]
"""A duration in emulated time: 500ms, 60s, 5m, 1h."""
Label = Annotated[
    str,
    Field(
        pattern=pattern_of(
            r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$", "1 to 40 lower-case letters, digits and '-', with a letter first"
        )
    ),
]
Key = Annotated[str, Field(min_length=1, max_length=63)]
Text = Annotated[str, Field(max_length=200)]
Texts = dict[Key, Text]


def seconds(duration: str) -> float:
    """The length of a `Duration` (s)."""
    unit = duration.lstrip("0123456789.")
    return float(duration.removesuffix(unit)) * UNITS[unit]


class Selection(ApiModel):
    """Which resources of the type may be chosen. Omitted fields do not restrict the choice."""

    names: list[Key] = Field(default_factory=empty_list, max_length=1024, description="only resources of these names")
    instance: str | None = Field(None, max_length=127, description="only the nodes of this instance")
    role: Literal["member", "spare"] | None = Field(None, description="with instance: only its members, or its spares")
    state: str | None = Field(None, max_length=40, description="only resources in this state")
    supernode: str | None = Field(None, max_length=10, description="only in this supernode")
    cabinet: str | None = Field(None, max_length=20, description="only in this cabinet")
    plane: Literal["ub", "rdma"] | None = Field(None, description="for switches: only on this plane")
    kind: str | None = Field(None, max_length=20, description="for switches: only l1, l2 or leaf switches")


class Target(ApiModel):
    """What faults are injected into. The scenario's seed chooses among everything that matches the selection."""

    type: Literal["node", "cabinet", "switch", "service"] = Field(description="the kind of resource")
    select: Selection = Field(Selection(), description="which resources may be chosen")
    mode: str = Field(
        "ALL",
        pattern=pattern_of(
            r"^(ALL|COUNT\([1-9]\d{0,4}\)|PERCENT\(([1-9]\d?|100)\))$",
            "ALL, COUNT(n) or PERCENT(n), as in COUNT(2) or PERCENT(50)",
        ),
        description="how many to choose: ALL, COUNT(n) or PERCENT(n), rounded down",
    )
    empty: Literal["fail"] = Field("fail", description="a target that selects nothing is refused")


class Condition(ApiModel):
    """A number that is read from the services, with bounds.

    A `metric` is a number itself. For events, faults and the resources of a target, the number is how many match.
    """

    metric: str | None = Field(None, max_length=60, description="a metric by name, such as orphans")
    event: str | None = Field(None, max_length=60, description="counts new events with this reason")
    fault: str | None = Field(None, max_length=40, description="counts detected faults with this code; * for any")
    instance: str | None = Field(None, max_length=127, description="an instance that matches the other fields")
    target: Label | None = Field(
        None, description="counts matching resources of this target, as the control plane shows them"
    )
    hardware: Label | None = Field(
        None, description="counts matching resources of this target, as the emulated hardware really is"
    )
    of: str | None = Field(
        None, max_length=127, description="the instance of the metric or event, or the target of the fault"
    )
    state: str | None = Field(None, max_length=40, description="the state to match; Gone: the instance does not exist")
    where: Texts = Field(
        default_factory=empty_dict,
        max_length=16,
        description="fields to match, by path; | separates alternative values",
    )
    floor: Literal["held"] | None = Field(None, description="the instance's links have their guaranteed bandwidth")
    count: float | None = Field(None, description="exactly this many")
    min: float | None = Field(None, description="at least this")
    max: float | None = Field(None, description="at most this")
    above: float | None = Field(None, description="more than this")
    below: float | None = Field(None, description="less than this")

    @property
    def subjects(self) -> list[str]:
        """The names of the subject fields that are set; exactly one has to be."""
        return [each for each in SUBJECTS if getattr(self, each) is not None]

    @property
    def bounded(self) -> bool:
        return any(getattr(self, each) is not None for each in BOUNDS)

    def holds(self, number: float, total: int = 1) -> bool:
        """Whether `number` is within the bounds. Without bounds, all of `total`, and at least one, must match."""
        if not self.bounded:
            return number >= max(1, total)
        return (
            (self.count is None or number == self.count)
            and (self.min is None or number >= self.min)
            and (self.max is None or number <= self.max)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def sentence(self) -> str:
        """The condition in words."""
        subject = self.subjects[0] if self.subjects else "nothing"
        words = [subject, str(getattr(self, subject, ""))]
        words += [f"of {self.of}"] if self.of else []
        words += [self.state] if self.state else []
        words += [f"{path}={value}" for path, value in self.where.items()]
        words += ["floors held"] if self.floor else []
        words += [f"{name} {getattr(self, name):g}" for name in BOUNDS if getattr(self, name) is not None]
        return " ".join(words)


SUBJECTS = ("metric", "event", "fault", "instance", "target", "hardware")
BOUNDS = ("count", "min", "max", "above", "below")


class SteadyState(Condition):
    """What has to hold before faults are injected, or after they are rolled back."""

    mode: Literal["start", "end", "both"] = Field("start", description="when it has to hold")
    within: Duration = Field("0s", description="how long to wait for it")


class StopCondition(Condition):
    """If this holds, the run is stopped and rolled back. `source: none` declares that there is no such condition."""

    source: Literal["none"] | None = Field(None, description="none: nothing stops the run; has to be the only entry")


class Verification(Condition):
    """How to tell that the fault took effect; if it did not, the run is invalid."""

    within: Duration = Field("5s", description="how long the effect may take to show")


class Expectation(Condition):
    """What the control plane has to do about the faults."""

    name: str | None = Field(None, max_length=120, description="the expectation in words, for the report")
    within: Duration = Field(description="the time limit, in emulated time from the fault")
    after: Label | None = Field(None, description="the action the limit counts from; by default the first")
    mode: Literal["settled", "reached", "always"] = Field(
        "settled",
        description="settled: it holds at the limit and began to by then; reached: it held at some moment before the "
        "limit; always: it held at every check until the limit",
    )


class Action(ApiModel):
    """One fault, injected into every resource of a target."""

    name: Label = Field(description="its name, for expectations and the control")
    fault: str = Field(max_length=40, description="the kind of fault; `matrixctl fault kinds` lists them")
    target: Label = Field(description="the target to inject it into")
    parameters: Texts = Field(default_factory=empty_dict, max_length=16, description="parameters of that kind of fault")
    at: Duration = Field("0s", description="when to inject it, from the start of the method")
    duration: Duration | None = Field(None, description="how long it lasts; by default until the end")
    verify: Verification = Field(description="how to tell that it took effect")


class Control(ApiModel):
    """A control run of the method without some of the faults, done first: what happens there is not caused by them."""

    skip: list[Label] = Field(min_length=1, max_length=32, description="the actions to leave out")
    expect: list[Expectation] = Field(min_length=1, max_length=32, description="what has to happen without them")


class Scenario(ApiModel):
    """What fails, when, and what has to happen in response. Times are emulated."""

    title: str = Field(min_length=1, max_length=120, description="the subject, in one line")
    explanation: str = Field("", max_length=4000, description="what the scenario shows, and why that matters")
    source: str = Field("", max_length=500, description="where such a failure was published")
    seed: int = Field(0, ge=0, le=2**31, description="seed of all random choices")
    given: dict[Key, InstanceShape] = Field(
        default_factory=empty_dict,
        max_length=8,
        description="instances that are created if they do not exist, and then deleted at the end",
    )
    targets: dict[Label, Target] = Field(
        min_length=1, max_length=16, description="what faults are injected into, by name"
    )
    steady_state: list[SteadyState] = Field(
        default_factory=empty_list, max_length=16, description="what has to hold first; if not, the run is invalid"
    )
    stop_conditions: list[StopCondition] = Field(
        min_length=1, max_length=16, description="what stops the run at once; `source: none` if nothing does"
    )
    method: list[Action] = Field(min_length=1, max_length=32, description="the faults and their times")
    expect: list[Expectation] = Field(min_length=1, max_length=32, description="what has to happen")
    control: Control | None = Field(None, description="shows that it does not happen without the faults")
    rollback: Literal["always"] = Field("always", description="whatever happens, all faults are cleared at the end")

    @property
    def all_conditions(self) -> Iterator[tuple[str, Condition]]:
        """All conditions, each with the path of its field."""
        for path_prefix, conditions in (
            ("steadyState", self.steady_state),
            ("stopConditions", self.stop_conditions),
            ("expect", self.expect),
            ("control.expect", self.control.expect if self.control else []),
        ):
            yield from ((f"{path_prefix}[{number}]", each) for number, each in enumerate(conditions))
        yield from ((f"method[{number}].verify", each.verify) for number, each in enumerate(self.method))

    @property
    def instances(self) -> list[str]:
        """The names of all instances the scenario mentions."""
        found = {*self.given, *(each.select.instance for each in self.targets.values())}
        for _, each in self.all_conditions:
            found |= {each.instance, each.of if each.of not in self.targets else None}
        return sorted(name for name in found if name is not None)

    def action(self, name: str | None) -> Action:
        """The action of that name, or the first one."""
        return next((each for each in self.method if each.name == name), self.method[0])
