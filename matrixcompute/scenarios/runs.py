"""The wire contract of scenarios and their runs. Times are emulated."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixcompute.scenarios.report import Entry, Outcome, Preview, Verdict
from matrixcompute.scenarios.schema import Scenario

PhaseName = Literal["Preparing", "SteadyState", "Control", "Method", "RollingBack"]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)

SCENARIO_EXAMPLE: dict[str, Any] = {
    "title": "A free node loses power",
    "targets": {"victim": {"type": "node", "select": {"names": ["sn0-c11-n2"]}}},
    "stopConditions": [{"source": "none"}],
    "method": [
        {
            "name": "dark",
            "fault": "node-down",
            "target": "victim",
            "at": "1m",
            "verify": {"hardware": "victim", "where": {"powered": "false"}},
        }
    ],
    "expect": [{"metric": "nodes.lost", "above": 0, "within": "5m"}],
}


class ScenarioRequest(Scenario):
    """A scenario to store under a name, and its labels."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (SCENARIO_EXAMPLE,)

    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")


class ScenarioView(ResourceView, Scenario):
    """A scenario that can be run by name."""

    built_in: bool = Field(False, description="it comes with the project and can be neither changed nor deleted")


class ScenarioRunSpec(ApiModel):
    """Which scenario to run: one of `/v1/scenarios` by name, or the one in `definition`."""

    scenario: str | None = Field(None, max_length=63, description="the name of a scenario in /v1/scenarios")
    definition: Scenario | None = Field(None, description="the scenario itself, instead of a name")
    seed: int | None = Field(None, ge=0, le=2**31, description="seed of random choices; by default the scenario's")


class ScenarioRunRequest(ScenarioRunSpec):
    """A run, with its name and labels. A posted run without a `name` is given one."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"definition": SCENARIO_EXAMPLE, "seed": 7},)

    name: str | None = Field(None, max_length=63, description="name of the run; by default one is generated")
    labels: dict[str, str] = Field(default_factory=empty_dict, description="labels of the run")

    @model_validator(mode="after")
    def _exactly_one(self) -> ScenarioRunRequest:
        if (self.scenario is None) == (self.definition is None):
            raise ValueError("give either scenario (a name) or definition, not both")
        return self


class RunPhase(ApiModel):
    """A phase of a run: Preparing (instances are created), SteadyState (what has to hold first), Control (the method
    without some faults), Method, RollingBack."""

    name: PhaseName = Field(description="the phase")
    started_at: str = Field(description="when it began, in emulated time")
    finished_at: str | None = Field(None, description="when it ended, in emulated time")


class ScenarioRunView(ResourceView, ScenarioRunSpec):
    """One run: its progress and its result."""

    verdict: Verdict | None = Field(None, description="the verdict, once it is Completed")
    message: str = Field("", description="what it waits for, or the reason for its verdict")
    title: str = Field("", description="title of the scenario")
    phase: PhaseName | None = Field(None, description="the last phase that has begun")
    phases: list[RunPhase] = Field(default_factory=empty_list, description="the phases that have begun, in order")
    targets: dict[str, list[str]] = Field(default_factory=empty_dict, description="the chosen resources, by target")
    expectations: list[Outcome] = Field(
        default_factory=empty_list, description="the result of each expectation, once all are decided"
    )
    entries: list[Entry] = Field(default_factory=empty_list, description="what was done and observed, in order")
    instances: list[str] = Field(default_factory=empty_list, description="the instances that the scenario mentions")
    fault_prefix: str = Field("", description="the prefix of its faults' names")
    seconds: float | None = Field(None, description="how long it took (s, emulated)")
    history_hash: str = Field("", description="equal for runs in which the same happened at the same times")
    replay: str = Field("", description="the command that runs it again")
    preview: Preview | None = Field(None, description="with validateOnly: what it would do, and to what")
    started_at: str | None = Field(None, description="when it left the queue, in emulated time")
    finished_at: str | None = Field(None, description="when it was rolled back, in emulated time")
