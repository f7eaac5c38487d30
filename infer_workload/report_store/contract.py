"""Kept reports, as documents on the wire."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_model import ApiModel, ResourceView

DEPTH_MAX = 32
"""Levels of a document; what `matrixctl experiment` prints has five."""
NUMBER_MAX = 1e300
HTML_MAX = 600_000
"""Characters of a page, which with its document stays below the 1 MiB that a body may have."""

Experiment = Literal["run", "what-if", "compare", "sweep", "capacity", "autoscale"]
Line = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Number = Annotated[float, Field(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Series = Annotated[list[tuple[Number, Number]], Field(max_length=1000)]


class PlotView(ApiModel):
    """Lines over a common axis; each line is (x, y) pairs in order of x."""

    title: Line = Field(description="what is drawn")
    x: Line = Field(description="what is along the axis, with its unit")
    y: Line = Field(description="what is up, with its unit")
    lines: dict[Line, Series] = Field(description="by name: the points", max_length=24)


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

    experiment: Experiment = Field(description="what made it")
    title: Line = Field(min_length=1, description="what it is about, in a line")
    command: str = Field("", max_length=4000, pattern=r"^[^\x00-\x1f\x7f]*$", description="makes the same again")
    document: dict[str, Any] = Field(description="what the command printed with -o json")
    plots: list[PlotView] = Field(default_factory=empty_list, max_length=16, description="what the report draws")
    html: str = Field("", max_length=HTML_MAX, description="the report as one file that needs nothing else")
    labels: dict[str, str] = Field(default_factory=empty_dict)

    @model_validator(mode="after")
    def _is_a_document(self) -> Self:
        if not self.document:
            raise ValueError("document: it is empty; give what `matrixctl experiment ... -o json` printed")
        _check(self.document, "document", DEPTH_MAX)
        return self


def _check(part: Any, at: str, levels: int) -> None:
    """Raises ValueError for what JSON cannot say, or nobody reads."""
    if levels < 0:
        raise ValueError(f"{at[:80]}...: it is nested deeper than {DEPTH_MAX} levels")
    if isinstance(part, int | float) and not -NUMBER_MAX <= part <= NUMBER_MAX:
        raise ValueError(f"{at}: it is no number between -{NUMBER_MAX:g} and {NUMBER_MAX:g}")
    if isinstance(part, dict):
        for name, inner in part.items():
            _check(inner, f"{at}.{name}", levels - 1)
    elif isinstance(part, list):
        for index, inner in enumerate(part):
            _check(inner, f"{at}[{index}]", levels - 1)


class ReportView(ResourceView):
    """A kept report without its content."""

    experiment: Experiment = Field(description="what made it")
    title: str = Field(description="what it is about, in a line")
    command: str = Field("", description="makes the same again")
    author: str = Field("", description="the name of the token that kept it last")
    size_bytes: int = Field(0, description="of its content")


class ReportContentView(ApiModel):
    """What is in a kept report."""

    name: str
    project: str
    experiment: Experiment
    title: str
    command: str
    document: dict[str, Any]
    plots: list[PlotView]
    html: str


class ChangeView(ApiModel):
    """A number of both reports; `part` is the change as a part of what was, none of nothing."""

    name: str
    before: float
    after: float
    part: float | None = None
    better: bool | None = Field(None, description="left out where it says nothing of that, or stayed")


class ReportComparisonView(ApiModel):
    """What differs between two reports of `matrixctl experiment run`: every number that both have, changed or not."""

    before: ReportView
    after: ReportView
    changes: list[ChangeView]
