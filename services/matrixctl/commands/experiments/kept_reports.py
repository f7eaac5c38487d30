"""--keep: store a report on the stack, where the console shows it and the whole project can read it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import validate_resource_name
from services.matrixctl.commands.experiments.parameters import check_writable, write_output
from services.matrixctl.commands.options import ProjectOptions

if TYPE_CHECKING:
    from infer_workload.reports.html import Plot

POINTS_MAX, LINES_MAX = 400, 24
"""Limits of a stored plot; more could not be told apart."""


@dataclass(frozen=True)
class KeptReport:
    """A report that may be kept: its title, the document that -o json prints, its plots, and its HTML page."""

    experiment: str
    title: str
    command: str
    document: Mapping[str, Any]
    page: str
    plots: Sequence[Plot] = ()

    def request(self) -> dict[str, Any]:
        """The request body for CloudMatrix-Infer."""
        return {
            "experiment": self.experiment, "title": self.title[:200], "command": self.command[:4000],
            "document": self.document, "html": self.page,
            "plots": [
                {"title": plot.title, "x": plot.x, "y": plot.y,
                 "lines": {name: thin_points(points) for name, points in list(plot.lines.items())[:LINES_MAX]}}
                for plot in self.plots
            ],
        }  # fmt: skip


def table_report(
    experiment: str, title: str, made: Mapping[str, Any], document: Mapping[str, Any], columns: Sequence[str],
    rows: Sequence[Sequence[object]], plots: Sequence[Plot],
) -> KeptReport:  # fmt: skip
    """A report that is a table with plots. `made`: the command that reproduces it, and digests of its input."""
    from infer_workload.reports.html import table_page

    return KeptReport(
        experiment, title, made["command"], document, table_page(title, made, columns, rows, plots), plots
    )


def thin_points(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    """At most `POINTS_MAX` finite points, evenly chosen, including the first and the last."""
    known = [[x, y] for x, y in points if isfinite(x) and isfinite(y)]
    if len(known) <= POINTS_MAX:
        return known
    last = len(known) - 1
    return [known[index * last // (POINTS_MAX - 1)] for index in range(POINTS_MAX)]


@dataclass
class KeepOptions(ProjectOptions):
    """Whether and where a report is kept."""

    keep: Annotated[
        str | None, typer.Option("--keep", help="Keep the report on the running stack under this name.")
    ] = None

    def check(self, html: Path | None = None, csv: Path | None = None) -> None:
        """Check before the work starts that output files can be written, that a stack runs, and that the name is valid.
        Raises NotAccessible, NotRunning, InvalidField."""
        check_writable(html, "--html")
        check_writable(csv, "--csv")
        if html is not None and csv is not None and html.resolve() == csv.resolve():
            raise InvalidField(f"--html writes to {csv} too", field="--csv")
        if self.keep is not None:
            validate_resource_name(self.keep, "--keep")
            self.client.call("infer", "GET", "/v1/reports", params={"pageSize": "1"})

    def store(self, make: Callable[[], KeptReport], html: Path | None = None) -> None:
        """Write the page to `html` and keep the report, each if requested; otherwise `make` is not called."""
        if html is None and self.keep is None:
            return
        kept_report = make()
        write_output(html, kept_report.page, "--html")
        if self.keep is not None:
            self.client.call("infer", "PUT", resource_path("reports", self.keep), body=kept_report.request())
            print(
                f"kept as {self.keep}; see `matrixctl get reports`, or the console's page Experiments", file=sys.stderr
            )
