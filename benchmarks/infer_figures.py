"""Published figures against the model, and what each left-out point becomes when it is not in the fit.

    python benchmarks/infer_figures.py

Peers' errors on the same decode points are in docs/decisions/0300. Exits 1 when a figure that was not fitted misses by
more than 10 %.
"""

from __future__ import annotations

import sys

from benchmarks.infer_validation import fit
from benchmarks.infer_validation.figures import FITTED, figures, without_fit
from benchmarks.infer_validation.report import figures_text


def main() -> int:
    found = figures()
    print(figures_text(found))
    print("With the published efficiencies alone, nothing fitted:")
    bare = [
        figure for figure in figures(without_fit()) if figure.section == "decode" and figure.name.startswith("TPOT")
    ]
    print("  " + ", ".join(f"{figure.name} {figure.error:+.1%}" for figure in bare) + "\n")
    print("The fit, solved again:")
    fit.main(["--leave-out"])
    return int(any(abs(figure.error) > 0.10 for figure in found if figure.role != FITTED))


if __name__ == "__main__":
    sys.exit(main())
