"""Kubernetes quantities as whole thousandths, so that sums and comparisons are exact: "250m" is 250, "1" is 1000."""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

SPELLING = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?$")
FACTORS = {
    suffix: Fraction(10) ** power for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
} | {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)}


@lru_cache(maxsize=4096)
def milli(text: Any) -> int:
    """Thousandths of the unit, rounded up; ValueError when it is no quantity."""
    match = SPELLING.match(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number = Fraction(match[1])
    if match[2]:
        number *= Fraction(10) ** int(match[2])
    elif match[3]:
        number *= FACTORS[match[3]]
    return ceil(number * 1000)


def spelled(thousandths: int) -> str:
    """The shortest decimal spelling: "2", "1500m"."""
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def spelled_bytes(thousandths: int) -> str:
    """In Ki, as metrics are told."""
    return f"{thousandths // 1000 // 1024}Ki"


def requests_of(spec: dict[str, Any]) -> dict[str, int]:
    """What a pod takes of a node, in thousandths: the sum of its containers, or its greediest init container.

    What is no quantity counts as nothing asked: a controller must not trip over a stored object.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers") or []:
        for name, amount in _asked(container).items():
            total[name] = total.get(name, 0) + amount
    for container in spec.get("initContainers") or []:
        for name, amount in _asked(container).items():
            stays = container.get("restartPolicy") == "Always"
            total[name] = total.get(name, 0) + amount if stays else max(total.get(name, 0), amount)
    for name, text in (spec.get("overhead") or {}).items():
        if SPELLING.match(str(text).strip()):
            total[name] = total.get(name, 0) + milli(text)
    return total


def _asked(container: dict[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return {name: milli(text) for name, text in asked.items() if SPELLING.match(str(text).strip())}
