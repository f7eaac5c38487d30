"""Print the validation as text for a terminal, and its figures as a Markdown table for the documentation."""

from __future__ import annotations

from infer_workload.experiments.validation.published import FITTED, NOT_PREDICTED
from infer_workload.experiments.validation.validation import FigureComparison, Validation


def format_text(found: Validation) -> str:
    """Return the whole validation as text, in sections."""
    return "\n".join([ *figures_lines(found), "", *_summary(found), "", *_leave_one_out(found), "", *_fit(found), "",
    *_ablations(found), "", "Published figures that are not in the table:", *(f"  {name}: {why}" for name, why in
    NOT_PREDICTED.items()), "", ])  # fmt: skip


def figures_lines(found: Validation) -> list[str]:
    head = f"{'':16}{'figure':42}{'published':>10}{'model':>10}{'90 % interval':>19}{'error':>8}{'no fit':>9}"
    return [f"{head}  role, unit, source", *(_line(each) for each in found.figures)]


def _line(each: FigureComparison) -> str:
    between = f"{each.low:,.1f}..{each.high:,.1f}"
    bare = each.without_fit / each.published - 1.0
    outside = "" if each.inside else "  OUTSIDE"
    return (
        f"{each.section:16}{each.name:42}{each.published:10,.1f}{each.predicted:10,.1f}{between:>19}"
        f"{each.error:+8.1%}{bare:+9.1%}  {each.role}, {each.unit}, {each.source}{outside}"
    )


def _summary(found: Validation) -> list[str]:
    now = found.summary()
    recalled = [each for each in found.figures if each.role == "recalled"]
    return [
        f"{now['predicted']:.0f} predicted: mean error {now['predicted_mean_error']:.1%}, worst "
        f"{now['predicted_worst_error']:.1%}, {now['predicted_inside_interval']:.0%} inside their intervals",
        f"{now['fitted']:.0f} fitted: worst error {now['fitted_worst_error']:.1%}",
        f"of all {now['fitted'] + now['predicted']:.0f}, {now['inside_interval']:.0%} are inside their intervals",
        f"{len(recalled)} recalled figures do not count",
        f"published efficiencies alone, nothing fitted: mean error {now['without_fit_mean_error']:.1%}, worst "
        f"{now['without_fit_worst_error']:.1%}",
        f"matrix cores of the attention stream at batch 96: {found.attention_cores} by the model, 16 published",
    ]


def _leave_one_out(found: Validation) -> list[str]:
    now = found.summary()
    return [
        "Each fitted row predicted from the others: mean error "
        f"{now['left_out_mean_error']:.1%}, worst {now['left_out_worst_error']:.1%}",
        *(
            f"  {each.name:40}{each.published:10,.1f}{each.predicted:10,.1f}{each.error:+8.1%}"
            for each in found.left_out
        ),
    ]


def _fit(found: Validation) -> list[str]:
    rows = len(found.fit.rows)
    document = found.document()
    return [
        f"{len(document['fit'])} constants fitted to {rows} rows and {len(document['priors'])} priors:",
        *(
            f"  {each['name']:22}{each['value']:10.4g} +-{each['sigma']:<9.2g} {each['unit']}: {each['meaning']}"
            for each in document["fit"]
        ),
    ]


def _ablations(found: Validation) -> list[str]:
    return [
        "Predicted gain of each mechanism; the published results are not used:",
        f"  {'mechanism':26}{'point':26}{'without':>10}{'with':>10}{'change':>9}",
        *(
            f"  {each.mechanism:26}{each.point:26}{_format_number(each.without):>10}"
            f"{_format_number(each.with_it):>10}{each.gain:+9.1%}  {each.unit}"
            for each in found.ablations
        ),
    ]


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_markdown(found: Validation) -> str:
    """Return the figures as the table in the documentation, followed by the summary."""
    lines = [
        "| figure | published | model | 90 % interval | error | nothing fitted | role | source |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in found.figures:
        bare = each.without_fit / each.published - 1.0
        mark = "" if each.inside else " (outside)"
        lines.append(
            f"| {each.section}: {each.name} | {each.published:,.4g} {each.unit} | {each.predicted:,.4g} | "
            f"{each.low:,.4g} to {each.high:,.4g}{mark} | {each.error:+.1%} | {bare:+.0%} | {each.role} | "
            f"{each.source} |"
        )
    left = [f"{each.name} {each.error:+.1%}" for each in found.left_out]
    fitted = [each for each in found.figures if each.role == FITTED]
    lines += [
        "",
        "* " + "\n* ".join(_summary(found)),
        f"* each of the {len(fitted)} fitted rows left out: {'; '.join(left)}",
    ]
    return "\n".join(lines) + "\n"
