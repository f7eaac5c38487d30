"""Answer a case of the fabric-oracle/1 format with the project's own fabric core.

    python -m benchmarks.fabric_oracle CASE.json [...]               compare with the case's own `expect`
    python -m benchmarks.fabric_oracle CASE.json --answer OUT.json   write the answer (the keys of `expect`)
    python -m benchmarks.fabric_oracle CASE.json --exact             by the exact method where there are two

Supported rules: max-min, floor-level, guarantee-plus-share, fluid, splittable-max-min, admission, reachability, steps.
Rates, and completion times of more than 5,000 flows, come from the array code for large traffic, in floats. With
--exact, rates and everything else except reservations are computed and written as Fractions ("28/3"). Comparisons allow
1e-9 relative error. Exit status: 0 if everything agrees, 1 if not, 2 if a case cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fabric_oracles.floor_level import FLOOR_LEVEL, GUARANTEE_PLUS_SHARE, from_flows, share, share_floats
from benchmarks.fabric_oracles.reach import UbFailures
from benchmarks.fabric_oracles.splitting import share_split
from benchmarks.fabric_oracles.timeline import FabricEvent, Timeline
from benchmarks.fabric_traffic.completion import run
from matrixcommon.model.planes import Plane
from matrixlink.admission.bandwidth_ledger import BandwidthLedger, Booking
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.fabric.sharing.flow import Flow, Number
from matrixlink.fabric.sharing.max_min import Overcommitted
from matrixresource.topology import Supernode

EXACT_FLOWS_MAX = 5000
TOLERANCE = 1e-9
Case = dict[str, Any]
Rates = Callable[..., Sequence[Number]]


def solve(case: Case, exact: bool = False) -> dict[str, Any]:
    """Return the answer to a case, with the keys of its `expect`. Raises ValueError for an unknown format or rule."""
    known = [*BY_RATES, *BY_KIND]
    if case.get("format") != "fabric-oracle/1" or case.get("rule") not in known:
        current = f"format {case.get('format')!r}, rule {case.get('rule')!r}"
        raise ValueError(f"{current}: expected fabric-oracle/1 and one of {', '.join(known)}")
    rates = share if exact else share_floats
    by_rates = BY_RATES.get(case["rule"])
    return by_rates(case, rates) if by_rates else BY_KIND[case["rule"]](case)


def _shared(case: Case, share: Rates) -> dict[str, Any]:
    rule = FLOOR_LEVEL if case["rule"] == FLOOR_LEVEL else GUARANTEE_PLUS_SHARE
    links = _links(case)
    try:
        rates = share(_flows(case), dict(enumerate(links.values())), rule)
    except Overcommitted as over:
        names = list(links)
        return {"infeasible": True, "overbooked_links": sorted(names[key] for key in over.links)}  # type: ignore[call-overload]
    return {"rate": rates, "total": sum(rates), "smallest": min(rates, default=0), "largest": max(rates, default=0)}


def _fluid(case: Case) -> dict[str, Any]:
    number, flows = _number(case), _flows(case)
    links: dict[Hashable, Number] = dict(enumerate(_links(case).values()))
    if len(flows) > EXACT_FLOWS_MAX and not case.get("events"):
        ended = run(from_flows(flows, links)[0])
        return {"finish_ns": ended.at.tolist(), "makespan_ns": ended.makespan, "rate_solves": ended.rate_solves}
    events = [
        FabricEvent(
            number(event["time"]),
            {int(k): number(c) for k, c in _capacities(event.get("new_capacity", {}), case).items()},
            {int(f): tuple(path) for f, path in event.get("new_links", {}).items()},
        )
        for event in case.get("events", [])
    ]
    done = Timeline(flows, links, events).run()
    return {"finish_ns": done.at, "makespan_ns": done.makespan, "rate_solves": done.rate_solves}


def _capacities(given: dict[str, str], case: Case) -> dict[int, str]:
    """Return new capacities by link index, whether the case gives links by index or by name."""
    names = {name: index for index, (name, _) in enumerate(case["links"])}
    return {names[key] if key in names else int(key): value for key, value in given.items()}


def _splittable(case: Case) -> dict[str, Any]:
    links = dict(enumerate(Fraction(c) for _, c in case["links"]))
    candidates = [flow.get("candidates", []) for flow in case["flows"]]
    rates, common = share_split(candidates, links)
    unreachable = [f for f, paths in enumerate(candidates) if not paths]
    return {"rate": rates, "concurrent_lambda": common, "unreachable": unreachable}


def _admission(case: Case) -> dict[str, Any]:
    """Answer with the same ledger that MatrixLink uses for reservations; all links of the case are ports of one
    place."""
    given = {name: Fraction(c) for name, c in case.get("links", [])}
    needs = [_need(op) for op in case["ops"]]
    links = list(dict.fromkeys(link for need in needs for link in need))
    place = {link: at for at, link in enumerate(links)}
    have = np.array([float(given[link] if link in given else _capacity(link, case["topology"])) for link in links])
    book = BandwidthLedger(Fabric([Supernode()]), lambda plane, owner: have)
    decisions: list[Any] = []
    for op, need in zip(case["ops"], needs, strict=True):
        if op["op"] == "release":
            book.release(op["id"])
            decisions.append("released")
            continue
        amounts = np.zeros(len(links))
        amounts[[place[link] for link in need]] = [float(amount) for amount in need.values()]
        short = book.overcommitted_ports(Plane.UB, {"case": amounts}, op["id"])
        if not short:
            book.put(op["id"], Booking(Plane.UB, {"case": amounts}, {"case": amounts}))
        decisions.append({"refused": sorted(links[at] for _, at in short)} if short else "admitted")
    left = book.free(Plane.UB, "case")
    return {"decision": decisions, "residual": {link: float(left[place[link]]) for link in sorted(links)}}


def _need(op: Case) -> dict[str, Fraction]:
    """Return the rate that an admission needs on each link; paths that share a link add up."""
    need: dict[str, Fraction] = {}
    for link in (str(link) for path in op.get("paths", ()) for link in path):
        need[link] = need.get(link, Fraction(0)) + Fraction(op["rate_per_path"])
    return need


def _reachability(case: Case) -> dict[str, Any]:
    size = case["topology"]
    damage = UbFailures(
        size["planes"], size["nodes"], size["l2_per_plane"], size["dies_per_node"],
        Fraction(size["die_link"]), Fraction(size["uplink"]),
        {(p, k) for p, k in size.get("failed_l2", [])}, {(p, n, k) for p, n, k in size.get("failed_cables", [])},
    )  # fmt: skip
    pairs = []
    for asked in case.get("pairs") or case["expect"]["pairs"]:
        source, target = (asked["src"], asked["dst"]) if isinstance(asked, dict) else asked
        usable = damage.usable_l2(source, target)
        dead = [p for p, chips in enumerate(usable) if not chips]
        pairs.append(
            {"src": source, "dst": target, "usable_l2": usable, "max_flow_GBps": damage.pair_gbps(source, target),
             "dead_planes": dead}
        )  # fmt: skip
    broken, total = damage.broken_entries()
    return {"pairs": pairs, "default_dst_die_routes_broken": broken, "default_dst_die_routes_total": total}


def _steps(case: Case, share: Rates) -> dict[str, Any]:
    given = {name: Fraction(c) for name, c in case.get("links", [])}
    paths = dict(case["initial"]["paths"])
    before = _rates(paths, given, case["topology"], share)
    steps = []
    for step in case["steps"]:
        if step["op"] == "add":
            paths[str(step["flow"])] = step["path"]
        elif step["op"] == "del":
            del paths[str(step["flow"])]
        else:
            paths.update(step.get("moved", {}))
        after = _rates(paths, given, case["topology"], share)
        changed = sorted(int(f) for f in after if f in before and not matches(before[f], after[f]))
        steps.append({"rate": after, "changed": changed})
        before = after
    return {"steps": steps}


def _rates(paths: dict[str, list[str]], given: dict[str, Fraction], topology: Case, share: Rates) -> dict[str, Number]:
    links: dict[Any, Number] = {
        name: given[name] if name in given else _capacity(name, topology) for path in paths.values() for name in path
    }
    rates = share([Flow(tuple(path)) for path in paths.values()], links)
    return dict(zip(paths, rates, strict=True))


BY_RATES: dict[str, Callable[[Case, Rates], dict[str, Any]]] = {
    "max-min": _shared,
    "floor-level": _shared,
    "guarantee-plus-share": _shared,
    "steps": _steps,
}
BY_KIND: dict[str, Callable[[Case], dict[str, Any]]] = {
    "fluid": _fluid,
    "splittable-max-min": _splittable,
    "admission": _admission,
    "reachability": _reachability,
}


def _capacity(link: str, topology: Case) -> Fraction:
    """Return a link's rate by the kind at the start of its name."""
    kind = link.partition(":")[0]
    if kind in ("up", "dn"):
        return Fraction(topology.get("die_link", 28))
    if kind in ("tr", "br"):
        return Fraction(topology.get("uplink", 28))
    if kind in ("cu", "cd"):
        return Fraction(topology.get("cpu_link", "160/7"))
    return Fraction(50)


def _number(case: Case) -> Callable[[Any], Number]:
    return Fraction if len(case["flows"]) <= EXACT_FLOWS_MAX else lambda text: float(Fraction(text))


def _links(case: Case) -> dict[str, Number]:
    number = _number(case)
    return {name: number(capacity) for name, capacity in case["links"]}


def _flows(case: Case) -> list[Flow]:
    number = _number(case)
    fields = {"weight": "weight", "min": "floor", "max": "ceiling", "size": "size", "start": "start"}
    return [
        Flow(tuple(flow["links"]), **{ours: number(flow[theirs]) for theirs, ours in fields.items() if theirs in flow})
        for flow in case["flows"]
    ]


def matches(expected: Any, given: Any) -> bool:
    """Whether an answer matches the expected one within 1e-9 relative error."""
    if isinstance(expected, dict):
        return isinstance(given, dict) and all(k in given and matches(v, given[k]) for k, v in expected.items())
    if isinstance(expected, list):
        return len(expected) == len(given) and all(map(matches, expected, given))
    if isinstance(expected, bool) or expected is None:
        return expected is given
    try:
        a, b = Fraction(expected), Fraction(given)
    except (TypeError, ValueError):
        return bool(expected == given)
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


def expected(case: Case) -> Any:
    return case["expect"] if "expect" in case else {"steps": [step["expect"] for step in case["steps"]]}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fabric_oracle", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", type=Path, metavar="CASE.json")
    parser.add_argument("--answer", type=Path, metavar="OUT.json", help="write the answer of the one case given")
    parser.add_argument("--exact", action="store_true", help="rates in Fractions by the exact method")
    args = parser.parse_args(argv)
    if args.answer and len(args.cases) != 1:
        parser.error("--answer takes exactly one case")
    wrong = 0
    for path in args.cases:
        try:
            case = json.loads(path.read_text(encoding="utf-8"))
            found = solve(case, args.exact)
        except (OSError, ValueError, KeyError, TypeError) as refused:
            print(f"{path}: {type(refused).__name__}: {refused}", file=sys.stderr)
            return 2
        if args.answer:
            args.answer.write_text(json.dumps(found, default=_text), encoding="utf-8")
            return 0
        good = matches(expected(case), found)
        wrong += not good
        print(f"{case.get('id', path.name)} {case['rule']}: {'agrees' if good else 'DIFFERS'}")
    return 1 if wrong else 0


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Fraction) else float(value)


if __name__ == "__main__":
    sys.exit(main())
