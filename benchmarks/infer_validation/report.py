"""Each published figure beside the model's prediction, or what each mechanism is worth:
`python -m benchmarks.infer_validation.report --figures | --ablations`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.infer_validation.ablations import effects, effects_text
from benchmarks.infer_validation.figures import FITTED, Figure, figures


def figures_text(found: Sequence[Figure]) -> str:
    """Published figures beside predictions, and the mean error of those that were not fitted."""
    lines = [f"{'':14}{'figure':46}{'published':>11}{'model':>11}{'error':>9}  unit, role, source"]
    lines += [
        f"{figure.section:14}{figure.name:46}{figure.published:11,.1f}{figure.predicted:11,.1f}"
        f"{figure.error:+9.1%}  {figure.unit}, {figure.role}, {figure.source}"
        for figure in found
    ]
    unfitted = [abs(figure.error) for figure in found if figure.role != FITTED]
    lines.append(
        f"{len(unfitted)} figures were not fitted: mean absolute error {sum(unfitted) / len(unfitted):.1%}, "
        f"worst {max(unfitted):.1%}"
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--figures"]:
        print(figures_text(figures()), end="")
    elif sys.argv[1:] == ["--ablations"]:
        print(effects_text(effects()), end="")
    else:
        sys.exit("usage: python -m benchmarks.infer_validation.report --figures | --ablations")
