"""RunReport: the result of a run, entry by entry, with what it takes to repeat it."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_model import ApiModel

Verdict = Literal["PASS", "FAIL", "STOPPED", "INVALID"]


class Entry(ApiModel):
    """Something that was done or observed."""

    at_s: float = Field(description="emulated seconds after the start")
    what: Literal[
        "resolved", "given", "steady", "unsteady", "control", "injected", "verified", "unverified", "cleared", "met",
        "missed", "stopped", "rolledBack", "left",
    ] = Field(description="kind of entry, such as injected (a fault) or met (an expectation)")  # fmt: skip
    about: str = Field(description="the action, expectation, fault or instance it is about")
    message: str = Field("", description="what was observed, in a sentence")


class Outcome(ApiModel):
    """The result of one expectation."""

    name: str = Field(description="what was expected")
    passed: bool = Field(description="whether it was met")
    seconds: float | None = Field(None, description="emulated seconds from the fault until it held")
    within_s: float = Field(0.0, description="the time limit, in emulated seconds")
    message: str = Field("", description="what was observed instead")


class RunReport(ApiModel):
    """The journal of one run."""

    scenario: str
    run: str
    seed: int
    version: str = ""
    verdict: Verdict = "INVALID"
    reason: str = ""
    started_at: str = ""
    seconds: float = 0.0
    targets: dict[str, list[str]] = Field(default_factory=empty_dict)
    expectations: list[Outcome] = Field(default_factory=empty_list)
    entries: list[Entry] = Field(default_factory=empty_list)
    history_hash: str = ""
    replay: str = ""

    def seal(self) -> RunReport:
        """Set the hash of the history: equal for runs in which the same happened at the same times."""
        happened: list[Any] = [[each.at_s, each.what, each.about] for each in self.entries]
        document = json.dumps([self.scenario, self.seed, self.verdict, self.targets, happened], sort_keys=True)
        self.history_hash = hashlib.sha256(document.encode()).hexdigest()[:16]
        return self


class Preview(ApiModel):
    """What a run would do, and to what. Nothing is changed."""

    scenario: str = Field(description="name of the scenario")
    seed: int = Field(description="seed with which targets are chosen")
    targets: dict[str, list[str]] = Field(description="the resources that would be chosen, by target")
    given: dict[str, list[str]] = Field(
        default_factory=empty_dict, description="instances that would be created, and the nodes they would be placed on"
    )
    actions: list[str] = Field(description="the faults that would be injected: when, what and on which resources")
    expectations: list[str] = Field(description="what would have to happen, each with its time limit")
    seconds: float = Field(
        description="how long the method and its expectations take (s, emulated), without waiting for instances"
    )
