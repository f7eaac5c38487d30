"""Compare two reports: which numbers changed, by how much, and whether for the better."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from infer_workload.reports.report import Report, flatten
from matrixcommon.model.errors import InvalidField

LESS_IS_BETTER = ("ttft", "tpot", "latency", "refused", "requeued", "npus", "cache_blocks_evicted", "cache_blocks_lost")
MORE_IS_BETTER = (
    "finished", "output_tokens_per_s", "output_tokens_per_s_per_decode_npu", "input_tokens_per_s_per_prefill_npu",
    "tokens_per_s_per_npu", "cache_hit_rate_blocks", "cache_hit_rate_tokens", "goodput_share",
    "goodput_requests_per_s",
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One number of both reports. `better` is None if it did not change, or if neither direction is better."""

    name: str
    before: float
    after: float
    better: bool | None

    @property
    def part(self) -> float | None:
        """The change relative to `before`; None if that was 0."""
        return (self.after - self.before) / self.before if self.before else None


def numbers(report: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a report document by name; those of a spread are named like `ttft.p90`."""
    return {
        name: value
        for name, value in flatten(report, ".").items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def parse_report(text: str, field: str) -> dict[str, Any]:
    """Parse a report printed by `matrixctl experiment run -o json`. Raises InvalidField."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise InvalidField(f"not JSON: {wrong}", field=field) from wrong
    if not isinstance(document, dict) or not is_comparable(document) or not _has_valid_command(document):
        raise InvalidField("not a report of `matrixctl experiment run -o json`", field=field)
    if odd := next((name for name, value in numbers(document).items() if not isfinite(value)), None):
        raise InvalidField(f"{odd} is not a finite number", field=field)
    return document


def _has_valid_command(document: Mapping[str, Any]) -> bool:
    """Whether `made_by` is absent or names a command."""
    made = document.get("made_by")
    return made is None or (isinstance(made, dict) and isinstance(made.get("command"), str))


def is_comparable(document: Mapping[str, Any]) -> bool:
    """Whether the document is a report of one trial."""
    return "ttft.p50" in flatten(document, ".") and "finished" in numbers(document)


def compare(before: Mapping[str, Any] | Report, after: Mapping[str, Any] | Report) -> list[Change]:
    """Every number that both reports have, in a report's order, except objectives and the seed, which are inputs."""
    first, second = (numbers(asdict(each) if isinstance(each, Report) else each) for each in (before, after))
    return [
        Change(name, value, second[name], _better(name, value, second[name]))
        for name, value in first.items()
        if name in second and name != "seed" and not name.startswith("objectives")
    ]


def _better(name: str, before: float, after: float) -> bool | None:
    kind = name.partition(".")[0]
    if before == after or kind not in (*LESS_IS_BETTER, *MORE_IS_BETTER):
        return None
    return (after < before) == (kind in LESS_IS_BETTER)
