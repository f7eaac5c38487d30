"""Stored reports, as documents on the wire."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixcommon.model.validation import pattern_of

DEPTH_MAX = 32
"""Most levels of nesting of a document; those of `matrixctl experiment` have five."""
NUMBER_MAX = 1e300
HTML_MAX = 600_000
"""Most characters of a page, so that with its document it stays below the 1 MiB limit of a body."""

Experiment = Literal["run", "what-if", "compare", "sweep", "capacity", "autoscale"]
ONE_LINE = pattern_of(r"^[^\x00-\x1f\x7f]*$", "one line without control characters")
Line = Annotated[str, Field(max_length=200, pattern=ONE_LINE)]
Number = Annotated[float, Field(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Series = Annotated[list[tuple[Number, Number]], Field(max_length=1000)]


class PlotView(ApiModel):
    """Lines over a common axis; each line is a list of (x, y) pairs in order of x."""

    title: Line = Field(description="title of the plot")
    x: Line = Field(description="label of the horizontal axis, with its unit")
    y: Line = Field(description="label of the vertical axis, with its unit")
    lines: dict[Line, Series] = Field(description="points of each line, by its name", max_length=24)


class ReportRequest(ApiModel):
    """A report as `matrixctl experiment ... --keep NAME` sends it."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "experiment": "run",
            "title": "2,000 generated requests on 8 nodes",
            "command": "matrixctl experiment run --generate=2000 --nodes=8",
            "document": {"finished": 2000, "ttft": {"p50": 0.41, "p90": 1.2}, "tokens_per_s_per_npu": 812.5},
            "plots": [
                {"title": "Time to first token", "x": "seconds", "y": "share of requests",
                 "lines": {"TTFT": [[0.2, 0.0], [0.41, 0.5], [1.2, 0.9]]}},
            ],
        },
    )  # fmt: skip

    experiment: Experiment = Field(description="the kind of experiment that made it")
    title: Line = Field(min_length=1, description="title, one line")
    command: str = Field("", max_length=4000, pattern=ONE_LINE, description="command that reproduces it")
    document: dict[str, Any] = Field(description="output of the command with -o json")
    plots: list[PlotView] = Field(default_factory=empty_list, max_length=16, description="plots of the report")
    html: str = Field("", max_length=HTML_MAX, description="the report as one self-contained HTML file")
    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")

    @model_validator(mode="after")
    def _check_document(self) -> Self:
        if not self.document:
            raise ValueError("document: must not be empty; give the output of `matrixctl experiment ... -o json`")
        _check(self.document, "document", DEPTH_MAX)
        return self


def _check(part: Any, at: str, levels: int) -> None:
    """Raise ValueError for numbers that JSON cannot represent, and for excessive nesting."""
    if levels < 0:
        raise ValueError(f"{at[:80]}...: nested more than {DEPTH_MAX} levels deep")
    if isinstance(part, int | float) and not -NUMBER_MAX <= part <= NUMBER_MAX:
        raise ValueError(f"{at}: must be a number between -{NUMBER_MAX:g} and {NUMBER_MAX:g}")
    if isinstance(part, dict):
        for name, inner in part.items():
            _check(inner, f"{at}.{name}", levels - 1)
    elif isinstance(part, list):
        for index, inner in enumerate(part):
            _check(inner, f"{at}[{index}]", levels - 1)


class ReportView(ResourceView):
    """A stored report without its content."""

    experiment: Experiment = Field(description="the kind of experiment that made it")
    title: str = Field(description="title, one line")
    command: str = Field("", description="command that reproduces it")
    author: str = Field("", description="name of the token that stored it last")
    size_bytes: int = Field(0, description="size of its content")


class ReportContentView(ApiModel):
    """The content of a stored report."""

    name: str = Field(description="name of the report")
    project: str = Field(description="the project that owns it")
    experiment: Experiment = Field(description="the kind of experiment that made it")
    title: str = Field(description="title, one line")
    command: str = Field(description="command that reproduces it; empty: none was stored")
    document: dict[str, Any] = Field(description="output of the command with -o json")
    plots: list[PlotView] = Field(description="plots of the report")
    html: str = Field(description="the report as one self-contained HTML file; empty: none was stored")


class ChangeView(ApiModel):
    """One number of both reports."""

    name: str = Field(description="path of the number in the documents")
    before: float = Field(description="its value in the first report")
    after: float = Field(description="its value in the second report")
    part: float | None = Field(None, description="change relative to `before`; null if that is 0")
    better: bool | None = Field(
        None, description="whether the change is an improvement; null if unchanged, or if neither direction is better"
    )


class ReportComparisonView(ApiModel):
    """The comparison of two reports of `matrixctl experiment run`: every number that both have, changed or not."""

    before: ReportView = Field(description="the first report, taken as the earlier one")
    after: ReportView = Field(description="the second report")
    changes: list[ChangeView] = Field(description="every number that both have, without objectives and seed")
