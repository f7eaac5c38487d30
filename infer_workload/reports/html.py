"""Reports as one self-contained HTML file: tables and plots (pygal's SVG), no network and no script.

The same results give the same file, byte for byte: no clock is read, and plot ids are derived from titles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pygal
from pygal.style import CleanStyle

from infer_workload.reports.served import Requests
from infer_workload.reports.timeline import timeline

CDF_POINTS = 100
SCRIPT = re.compile(r"<script.*?</script>", re.DOTALL)
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
td, th {{ padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; font-variant-numeric: tabular-nums; }}
th {{ border-bottom: 1px solid #999; }}
figure {{ margin: 1.5rem 0; }} figcaption {{ font-weight: 600; }}
pre {{ background: #f4f4f4; padding: .6rem; overflow-x: auto; }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""


@dataclass(frozen=True)
class Plot:
    """Lines over a common axis; each line is (x, y) pairs."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]

    def svg(self) -> str:
        chart = pygal.XY(
            style=CleanStyle,
            js=[],
            show_dots=False,
            x_title=self.x,
            y_title=self.y,
            width=900,
            height=380,
            legend_at_bottom=True,
            disable_xml_declaration=True,
        )
        chart.uuid = "plot-" + "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())
        for name, points in self.lines.items():
            chart.add(name, list(points), show_dots=len(points) < 24)
        return SCRIPT.sub("", str(chart.render(is_unicode=True)))  # pygal embeds a script for tooltips


def page(title: str, made_by: Mapping[str, Any], rows: Sequence[tuple[str, str]], plots: Sequence[Plot]) -> str:
    """A page: the command that made it, the results, and the plots."""
    return PAGE.format(title=escape(title), body="\n".join([_made(made_by), format_rows(rows), *map(_figure, plots)]))


def table_page(
    title: str,
    made_by: Mapping[str, Any],
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    plots: Sequence[Plot],
) -> str:
    """The same with a table of several columns, after the plots."""
    head = "".join(f"<th>{escape(str(column))}</th>" for column in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><tr>{head}</tr>\n{body}</table>"
    return PAGE.format(title=escape(title), body="\n".join([_made(made_by), *map(_figure, plots), table]))


def format_rows(rows: Sequence[tuple[str, str]]) -> str:
    lines = "\n".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{lines}</table>"


def _made(made_by: Mapping[str, Any]) -> str:
    command, *rest = (f"{value}" for value in made_by.values())
    about = ", ".join(f"{name} {value}" for name, value in zip(list(made_by)[1:], rest, strict=True) if value != "None")
    return f"<pre>{escape(command)}</pre>\n<p>{escape(about)}</p>"


def _figure(plot: Plot) -> str:
    return f"<figure><figcaption>{escape(plot.title)}</figcaption>{plot.svg()}</figure>"


# ---- the plots of one experiment ------------------------------------------------------------------------------------


def plots_of(requests: Requests) -> list[Plot]:
    """Distributions of the latencies, and the load over time."""
    if not requests:
        return []
    steps = timeline(requests)
    ttft = cdf([each.ttft_s for each in requests])
    tpot = cdf([each.tpot_s * 1e3 for each in requests if each.output_tokens > 1])
    rates = {
        "arrive": [(each.at_s, each.arrivals_per_s) for each in steps],
        "finish": [(each.at_s, each.finished_per_s) for each in steps],
    }
    in_flight = [(each.at_s, each.in_flight) for each in steps]
    tokens = [(each.at_s, each.output_tokens_per_s) for each in steps]
    return [
        Plot("Time to first token", "seconds", "share of requests", {"TTFT": ttft}),
        Plot("Time per token", "milliseconds", "share of requests", {"TPOT": tpot}),
        Plot("Requests", "emulated seconds", "requests a second", rates),
        Plot("In flight", "emulated seconds", "requests", {"in flight": in_flight}),
        Plot("Output", "emulated seconds", "tokens a second", {"tokens": tokens}),
    ]


def cdf(values: Sequence[float]) -> list[tuple[float, float]]:
    """The cumulative distribution as (value, share) at each hundredth."""
    ranked = sorted(values)
    if not ranked:
        return []
    return [
        (ranked[min(len(ranked) - 1, len(ranked) * at // CDF_POINTS)], at / CDF_POINTS) for at in range(CDF_POINTS + 1)
    ]
