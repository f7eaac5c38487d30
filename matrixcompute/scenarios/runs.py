"""Scenarios and their runs as they are asked of MatrixCompute and shown. Times are emulated."""

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
    """A scenario to be kept under a name."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (SCENARIO_EXAMPLE,)

    labels: dict[str, str] = Field(default_factory=empty_dict)


class ScenarioView(ResourceView, Scenario):
    """One that can be run by its name."""

    built_in: bool = Field(False, description="it comes with the project, and can be neither changed nor deleted")


class ScenarioRunSpec(ApiModel):
    """Which scenario is run: one of `/v1/scenarios` by its name, or the one in `definition`."""

    scenario: str | None = Field(None, max_length=63, description="the name of one of /v1/scenarios")
    definition: Scenario | None = Field(None, description="the scenario itself, in place of a name")
    seed: int | None = Field(None, ge=0, le=2**31, description="for everything left to chance; by default its own")


class ScenarioRunRequest(ScenarioRunSpec):
    """A run to be had. Without a `name` a posted one gets one."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"definition": SCENARIO_EXAMPLE, "seed": 7},)

    name: str | None = Field(None, max_length=63)
    labels: dict[str, str] = Field(default_factory=empty_dict)

    @model_validator(mode="after")
    def _one_of_both(self) -> ScenarioRunRequest:
        if (self.scenario is None) == (self.definition is None):
            raise ValueError("give either scenario (a name) or definition")
        return self


class RunPhase(ApiModel):
    """A part of a run: Preparing (instances are made), SteadyState (what holds before), Control (the method without
    the fault), Method, RollingBack."""

    name: PhaseName = Field(description="which part")
    started_at: str = Field(description="when it began, in emulated time")
    finished_at: str | None = Field(None, description="when it was over, in emulated time")


class ScenarioRunView(ResourceView, ScenarioRunSpec):
    """One run: how far it is, and what it showed."""

    verdict: Verdict | None = Field(None, description="once it is Completed")
    message: str = Field("", description="what it waits for, or why its verdict is what it is")
    title: str = Field("", description="of the scenario")
    phase: PhaseName | None = Field(None, description="the last that it has begun")
    phases: list[RunPhase] = Field(default_factory=empty_list, description="those that it has begun, in their order")
    targets: dict[str, list[str]] = Field(default_factory=empty_dict, description="what its faults strike, by target")
    expectations: list[Outcome] = Field(
        default_factory=empty_list, description="what became of each, once all are decided"
    )
    entries: list[Entry] = Field(default_factory=empty_list, description="what was done and seen, in its order")
    instances: list[str] = Field(
        default_factory=empty_list, description="those that the scenario has anything to do with"
    )
    fault_prefix: str = Field("", description="begins the names of its faults")
    seconds: float | None = Field(None, description="how long it took")
    history_hash: str = Field("", description="the same for a run that went the same way at the same times")
    replay: str = Field("", description="the command that runs it again")
    preview: Preview | None = Field(None, description="with validateOnly: what it would do, and to what")
    started_at: str | None = Field(None, description="when its turn came, in emulated time")
    finished_at: str | None = Field(None, description="when all was rolled back, in emulated time")
