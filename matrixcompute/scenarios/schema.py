"""Scenario: what a fault scenario says, in the words of Chaos Toolkit (steady state, method, rollback) and of AWS FIS
(targets, selection modes, stop conditions).

The same document is a file of matrixctl, a body of REST (`/v1/scenarios`) and the spec of a MatrixFaultScenario.
Parameters are texts, because a structural schema of Kubernetes has one type for each value. What no single field can
say is in `checks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_model import ApiModel
from matrixcompute.contract import InstanceShape

KIND = "MatrixFaultScenario"

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
Duration = Annotated[str, Field(pattern=r"^\d{1,7}(\.\d{1,3})?(ms|s|m|h)$")]
"""Emulated time: 500ms, 60s, 5m, 1h."""
Label = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")]
Key = Annotated[str, Field(min_length=1, max_length=63)]
Text = Annotated[str, Field(max_length=200)]
Texts = dict[Key, Text]


def seconds(duration: str) -> float:
    """How long that is."""
    unit = duration.lstrip("0123456789.")
    return float(duration.removesuffix(unit)) * UNITS[unit]


class Selection(ApiModel):
    """Which resources of the type may be chosen; what is left out does not matter."""

    names: list[Key] = Field(default_factory=empty_list, max_length=1024, description="only these")
    instance: str | None = Field(None, max_length=127, description="only where this instance lies")
    role: Literal["member", "spare"] | None = Field(None, description="with instance: only its members, or its spares")
    state: str | None = Field(None, max_length=40, description="only those in this state")
    supernode: str | None = Field(None, max_length=10, description="only in this supernode")
    cabinet: str | None = Field(None, max_length=20, description="only in this cabinet")
    plane: Literal["ub", "rdma"] | None = Field(None, description="of switches: only of this plane")
    kind: str | None = Field(None, max_length=20, description="of switches: only l1, l2 or leaf")


class Target(ApiModel):
    """What faults strike: chosen by the scenario's seed among all that the selection leaves."""

    type: Literal["node", "cabinet", "switch", "service"] = Field(description="what kind of thing it is")
    select: Selection = Field(Selection(), description="which of them may be chosen")
    mode: str = Field(
        "ALL",
        pattern=r"^(ALL|COUNT\([1-9]\d{0,4}\)|PERCENT\(([1-9]\d?|100)\))$",
        description="how many of those: ALL, COUNT(n) or PERCENT(n), rounded down",
    )
    empty: Literal["fail"] = Field("fail", description="a target that selects nothing is refused")


class Condition(ApiModel):
    """Something that can be looked up in the services, as a number with bounds.

    A `metric` is a number already. Of events, faults, and the resources of a target, those that match are counted.
    """

    metric: str | None = Field(None, max_length=60, description="a number of the catalogue, e.g. orphans")
    event: str | None = Field(None, max_length=60, description="new events of this reason")
    fault: str | None = Field(None, max_length=40, description="detected faults of this code; * for any")
    instance: str | None = Field(None, max_length=127, description="an instance that is as the other fields say")
    target: Label | None = Field(None, description="of this target, as the control plane shows it")
    hardware: Label | None = Field(None, description="of this target, as the emulated hardware truly is")
    of: str | None = Field(
        None, max_length=127, description="of which instance the metric or event is, on which target the fault"
    )
    state: str | None = Field(None, max_length=40, description="its state; Gone for an instance that is not there")
    where: Texts = Field(
        default_factory=empty_dict, max_length=16, description="its fields, by path; several values are parted by |"
    )
    floor: Literal["held"] | None = Field(None, description="an instance's links have what they are promised")
    count: float | None = Field(None, description="exactly so many")
    min: float | None = Field(None, description="no fewer than this")
    max: float | None = Field(None, description="no more than this")
    above: float | None = Field(None, description="more than this")
    below: float | None = Field(None, description="less than this")

    @property
    def subjects(self) -> list[str]:
        """The fields that say what is looked up; there has to be one."""
        return [each for each in SUBJECTS if getattr(self, each) is not None]

    @property
    def bounded(self) -> bool:
        return any(getattr(self, each) is not None for each in BOUNDS)

    def holds(self, number: float, of_how_many: int = 1) -> bool:
        """Whether the bounds allow this number; without bounds it has to be all of them, at least one."""
        if not self.bounded:
            return number >= max(1, of_how_many)
        return (
            (self.count is None or number == self.count)
            and (self.min is None or number >= self.min)
            and (self.max is None or number <= self.max)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def sentence(self) -> str:
        """What it says, for a person."""
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
    """What has to hold before anything is done, or again when all is rolled back."""

    mode: Literal["start", "end", "both"] = Field("start", description="when it has to hold")
    within: Duration = Field("0s", description="how long it may take until it does")


class StopCondition(Condition):
    """Where this comes to hold the run is stopped and rolled back. `source: none` says that there is none."""

    source: Literal["none"] | None = Field(None, description="none: nothing stops this run; the only one then")


class Verification(Condition):
    """How it is known that the fault has happened; where it is not, the run is invalid."""

    within: Duration = Field("5s", description="how long it may take")


class Expectation(Condition):
    """What the control plane has to make of it."""

    name: str | None = Field(None, max_length=120, description="what it says, for the report")
    within: Duration = Field(description="emulated time from the fault")
    after: Label | None = Field(None, description="the action it counts from; by default the first")
    mode: Literal["settled", "reached", "always"] = Field(
        "settled",
        description="settled: it holds at that time, and had begun to before; reached: it came to hold by then, "
        "whatever became of it; always: it held at every look until then",
    )


class Action(ApiModel):
    """One fault on every resource of a target."""

    name: Label = Field(description="what expectations and the control call it")
    fault: str = Field(max_length=40, description="what happens; `matrixctl fault kinds` lists them")
    target: Label = Field(description="what it happens to")
    parameters: Texts = Field(default_factory=empty_dict, max_length=16, description="what the kind needs to know")
    at: Duration = Field("0s", description="when, from the start of the method")
    duration: Duration | None = Field(None, description="how long; until the end where it is left out")
    verify: Verification = Field(description="how it is known that it has happened")


class Control(ApiModel):
    """The same without some of the faults, done before: what happens then is not their doing."""

    skip: list[Label] = Field(min_length=1, max_length=32, description="the actions that are left out")
    expect: list[Expectation] = Field(min_length=1, max_length=32, description="what happens without them")


class Scenario(ApiModel):
    """What fails, when, and what has to happen then. Times are emulated ones."""

    title: str = Field(min_length=1, max_length=120, description="what it is about, in one line")
    explanation: str = Field("", max_length=4000, description="what it shows, and why that matters")
    source: str = Field("", max_length=500, description="where such a failure was published")
    seed: int = Field(0, ge=0, le=2**31, description="for everything that is left to chance")
    given: dict[Key, InstanceShape] = Field(
        default_factory=empty_dict,
        max_length=8,
        description="instances that are made where they are not there, and deleted again at the end",
    )
    targets: dict[Label, Target] = Field(min_length=1, max_length=16, description="what faults strike, by name")
    steady_state: list[SteadyState] = Field(
        default_factory=empty_list, max_length=16, description="what holds before: else the run is invalid"
    )
    stop_conditions: list[StopCondition] = Field(
        min_length=1, max_length=16, description="what ends the run at once; `source: none` where nothing does"
    )
    method: list[Action] = Field(min_length=1, max_length=32, description="the faults, in time")
    expect: list[Expectation] = Field(min_length=1, max_length=32, description="what has to happen")
    control: Control | None = Field(None, description="shows that it does not happen without the faults")
    rollback: Literal["always"] = Field("always", description="whatever happens, all faults are cleared at the end")

    @property
    def all_conditions(self) -> Iterator[tuple[str, Condition]]:
        """All of them, each with the path of its field."""
        for place, those in (
            ("steadyState", self.steady_state),
            ("stopConditions", self.stop_conditions),
            ("expect", self.expect),
            ("control.expect", self.control.expect if self.control else []),
        ):
            yield from ((f"{place}[{number}]", each) for number, each in enumerate(those))
        yield from ((f"method[{number}].verify", each.verify) for number, each in enumerate(self.method))

    @property
    def instances(self) -> list[str]:
        """The names of instances that it has anything to do with."""
        found = {*self.given, *(each.select.instance for each in self.targets.values())}
        for _, each in self.all_conditions:
            found |= {each.instance, each.of if each.of not in self.targets else None}
        return sorted(name for name in found if name is not None)

    def action(self, name: str | None) -> Action:
        """By name; the first where none is named."""
        return next((each for each in self.method if each.name == name), self.method[0])
