"""Published figures against the model: the error of each, those that the constants were fitted to apart.

Peers' errors on the same decode points are in docs/decisions/0300. `python benchmarks/infer_figures.py` prints the
whole tables, and what each left-out point becomes when it is not in the fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import Figure
from benchmarks.infer_validation import fit
from benchmarks.infer_validation.figures import FITTED, figures, without_fit
from benchmarks.infer_validation.report import figures_text

PREDICTED_WITHIN_PERCENT, FITTED_WITHIN_PERCENT = 10.0, 2.0


def measure() -> Iterator[Figure]:
    for found in figures():
        most = FITTED_WITHIN_PERCENT if found.role == FITTED else PREDICTED_WITHIN_PERCENT
        method = (
            f"{found.role}; published {found.published:g} {found.unit}, model {found.predicted:.4g}; {found.source}"
        )
        yield Figure(f"{found.section}: {found.name}, error", abs(found.error) * 100, "%", method, most)


def main() -> None:
    print(figures_text(figures()))
    print("With the published efficiencies alone, nothing fitted:")
    bare = [
        figure for figure in figures(without_fit()) if figure.section == "decode" and figure.name.startswith("TPOT")
    ]
    print("  " + ", ".join(f"{figure.name} {figure.error:+.1%}" for figure in bare) + "\n")
    print("The fit, solved again:")
    fit.main(["--leave-out"])


if __name__ == "__main__":
    main()
