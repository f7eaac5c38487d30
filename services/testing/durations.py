"""Durations as people write them in tests: `90s`, `20m`, `1h`, `2d`, or a number of seconds."""

from __future__ import annotations

import re

from matrixcommon.model.errors import InvalidField

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


def seconds(duration: str | float, field: str = "duration") -> float:
    """Convert a duration to seconds. Raises InvalidField if it is not a duration or is negative."""
    if isinstance(duration, int | float) and duration >= 0:
        return float(duration)
    parts = _PARTS.findall(str(duration))
    if parts and "".join(number + unit for number, unit in parts) == duration:
        return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    raise InvalidField(f"{duration!r} is not a duration such as 90s, 20m or 1h30m", field=field)
