"""RunReport: what became of a run, entry by entry, with what it takes to run it again."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_model import ApiModel

Verdict = Literal["PASS", "FAIL", "STOPPED", "INVALID"]


class Entry(ApiModel):
    """Something that was done or seen, so many emulated seconds after the start."""

    at_s: float = Field(description="emulated seconds after the start")
    what: Literal[
        "resolved", "given", "steady", "unsteady", "control", "injected", "verified", "unverified", "cleared", "met",
        "missed", "stopped", "rolledBack", "left",
    ]  # fmt: skip
    about: str = Field(description="of what: an action, an expectation, a fault, an instance")
    message: str = Field("", description="what was seen, in a sentence")


class Outcome(ApiModel):
    """What became of one expectation."""

    name: str = Field(description="what was expected")
    passed: bool = Field(description="whether it held")
    seconds: float | None = Field(None, description="from the fault until it held, emulated")
    within_s: float = Field(0.0, description="in how many emulated seconds it had to")
    message: str = Field("", description="what was seen in its place")


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

    def sealed(self) -> RunReport:
        """With the hash of what happened, which is the same for a run that went the same way at the same times."""
        happened: list[Any] = [[each.at_s, each.what, each.about] for each in self.entries]
        document = json.dumps([self.scenario, self.seed, self.verdict, self.targets, happened], sort_keys=True)
        self.history_hash = hashlib.sha256(document.encode()).hexdigest()[:16]
        return self


class Preview(ApiModel):
    """What a run would do, and to what; nothing was changed."""

    scenario: str
    seed: int
    targets: dict[str, list[str]]
    given: dict[str, list[str]] = Field(
        default_factory=empty_dict, description="instances that would be made, and the nodes they would lie on"
    )
    actions: list[str]
    expectations: list[str]
    seconds: float = Field(description="how long the method and its expectations take, without waiting for instances")
