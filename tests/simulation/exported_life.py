"""What happened in a life, written as a scenario file: its faults and ends of services in time, on the instances it had.

A scenario has no users who ask meanwhile, so of a life only what befell it is kept, and what has to be so at the end:
every instance is Active and Ready, nothing is stuck, nothing is an orphan. What the schema cannot say is counted in the
scenario's explanation.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from matrixcompute.contract import InstanceShape
from matrixcompute.scenarios.checks import parse
from matrixcompute.scenarios.schema import KIND
from matrixresource.agent.fault_catalogue import CATALOGUE

BEFORE_S = 10.0
"""From the start of the method to the first fault."""
SETTLED_WITHIN_S = 3600
ACTIONS_MAX, TARGETS_MAX, GIVEN_MAX = 32, 16, 8
"""As the schema has it."""
SOME = "1|2|3|4|5|6|7|8"

SEEN: Mapping[str, dict[str, str]] = {
    "node-down": {"powered": "false"},
    "agent-hang": {"agentsRun": "false"},
    "npu-fault": {"codes": SOME},
    "component-fault": {"codes": SOME},
    "missing-part": {"missing": SOME},
    "tables-lost": {"tables": "0"},
    "service-killed": {"restarted": "true"},
}
COUNTED = {
    "link-down": "hardware.ports-dark",
    "switch-down": "hardware.ports-dark",
    "link-degraded": "hardware.ports-narrow",
    "link-silent": "hardware.ports-lying",
}
"""By which field of its target, or by which number, a fault shows. Of others nothing can be seen."""


@dataclass
class Struck:
    """One fault, from when until when (seconds of the life's loop)."""

    kind: str
    target: str
    parameters: dict[str, Any]
    began_at: float
    ended_at: float | None = None


@dataclass
class History:
    """What is remembered of a life."""

    struck: list[Struck] = field(default_factory=list)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The first spec of each instance, by its key."""
    active: set[str] = field(default_factory=set)
    others: Counter[str] = field(default_factory=Counter)
    _under: dict[str, Struck] = field(default_factory=dict)

    def injected(self, at_s: float, name: str, fault: Mapping[str, Any]) -> None:
        if name not in self._under:
            parameters = dict(fault.get("parameters", {}))
            self._under[name] = Struck(fault["kind"], str(fault["target"]), parameters, at_s)
            self.struck.append(self._under[name])

    def cleared(self, at_s: float, name: str) -> None:
        if (found := self._under.pop(name, None)) is not None:
            found.ended_at = at_s

    def killed(self, at_s: float, service: str) -> None:
        service = service.removesuffix("-replica")
        self.struck.append(Struck("service-killed", service, {}, at_s, at_s))

    def heard(self, at_s: float, service: str, method: str, path: str, body: Any) -> None:
        """A request that was acknowledged."""
        collection, _, name = path.removeprefix("/v1/").partition("/")
        match service, method, collection:
            case "agents", "PUT", "faults":
                self.injected(at_s, name, body)
            case "agents", "DELETE", "faults":
                self.cleared(at_s, name)
            case "compute", "PUT", "instances":
                self.asked.setdefault(f"{body.get('project', 'default')}/{name}", body)
            case _ if method != "GET":
                self.others[f"{method} {collection}"] += 1

    def saw(self, instances: Sequence[Mapping[str, Any]]) -> None:
        self.active |= {f"{each['project']}/{each['name']}" for each in instances if each["state"] == "Active"}

    def document(self, ended_at: float, title: str = "A life in which something was found broken") -> dict[str, Any]:
        """The scenario, as a resource. Raises LookupError where nothing befell this life that a scenario can say."""
        known = [each for each in self.struck if each.kind in SEEN or each.kind in COUNTED]
        struck, targets = [], {}
        for each in known[:ACTIONS_MAX]:
            name = f"at-{each.target}"
            if name in targets or len(targets) < TARGETS_MAX:
                targets[name] = {"type": _type(each), "select": {"names": [each.target]}}
                struck.append(each)
        if not struck:
            raise LookupError("nothing befell this life that a scenario can say")
        base_s = struck[0].began_at - BEFORE_S
        given = {key: _shape(self.asked[key]) for key in sorted(self.active & set(self.asked))[:GIVEN_MAX]}
        last_s = max(each.ended_at or ended_at for each in struck) - base_s
        within = f"{int(last_s) + SETTLED_WITHIN_S}s"
        expect = [
            {"name": f"{key} is whole", "instance": key, "state": "Active", "where": {"conditions.Ready.status": "True"},
             "within": within}
            for key in given
        ]  # fmt: skip
        expect += [
            {"name": what, "metric": metric, "count": 0, "within": within}
            for what, metric in (("nothing is stuck", "stuck"), ("nothing is left behind", "orphans"))
        ]
        spec = {
            "title": title,
            "explanation": self._explanation(len(self.struck) - len(struck)),
            "source": "tests/simulation/test_rest_machines.py",
            "given": given,
            "targets": targets,
            "stopConditions": [{"source": "none"}],
            "method": [_action(number, each, base_s, ended_at) for number, each in enumerate(struck)],
            "expect": expect,
        }
        name = f"life-{hashlib.sha256(repr(spec).encode()).hexdigest()[:8]}"
        return {"apiVersion": "cloudmatrix.io/v1alpha1", "kind": KIND, "metadata": {"name": name}, "spec": spec}

    def export(self, ended_at: float, folder: Path | None = None) -> Path:
        """Write it down, and return where. Raises LookupError as `document` does."""
        document = self.document(ended_at)
        name, _ = parse(document, "life")
        file = (folder or Path(tempfile.gettempdir())) / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document, sort_keys=False, width=120))
        return file

    def _explanation(self, left_out: int) -> str:
        asked = ", ".join(f"{count} x {what}" for what, count in sorted(self.others.items())) or "nothing"
        return (
            "Drawn by chance; the command that lives the whole life again is printed beside it. Left out: "
            f"{left_out} of its faults, and what users asked meanwhile ({asked})."
        )[:4000]


def _type(struck: Struck) -> str:
    strikes = "service" if struck.kind == "service-killed" else CATALOGUE[struck.kind].scope
    return "node" if strikes == "cabinet" else strikes


def _shape(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The spec without what makes it end by itself."""
    return {name: value for name, value in asked.items() if name in SHAPE}


SHAPE = {each.alias or name for name, each in InstanceShape.model_fields.items()} - {"project", "leaseS"}


def _action(number: int, struck: Struck, base_s: float, ended_at: float) -> dict[str, Any]:
    target, lasted_s = f"at-{struck.target}", (struck.ended_at or ended_at) - struck.began_at
    verify: dict[str, Any] = {"metric": COUNTED[struck.kind], "min": 1} if struck.kind in COUNTED else {}
    if struck.kind in SEEN:
        verify = {"hardware": target, "where": SEEN[struck.kind]}
    killed = struck.kind == "service-killed"
    return {
        "name": f"f{number}",
        "fault": struck.kind,
        "target": target,
        "parameters": {name: str(value) for name, value in struck.parameters.items()},
        "at": f"{struck.began_at - base_s:.3f}s",
        **({} if killed else {"duration": f"{max(1.0, lasted_s):.3f}s"}),
        "verify": {**verify, "within": "15m" if killed else "5s"},
    }
