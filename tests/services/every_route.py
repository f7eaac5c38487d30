"""Every route of every service, and a request to each: what tests that walk all of them have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import APIRouter
from fastapi.routing import APIRoute

from infer_workload import access as infer_access
from matrixcommon.api.authorization import AccessRules, Rule
from matrixcommon.api.query_parameters import declared_names
from matrixcompute import access as compute_access
from matrixlink.api import access as link_access
from matrixresource.api import access as resource_access
from matrixresource.nodes.states import NODE_STATES
from services.node_agent import access as agents_access
from tests.stack import Stack

NODE = "sn0-c00-n0"
RULES: dict[str, AccessRules] = {
    "resource": resource_access.ACCESS,
    "link": link_access.ACCESS,
    "compute": compute_access.ACCESS,
    "infer": infer_access.ACCESS,
    "agents": agents_access.ACCESS,
}
ENGINES = ("resource", "link", "compute")
"""Services that have workflows."""
OPEN = {"/healthz", "/readyz", "/health", "/metrics"}

NAMES = {
    # what there is by collection, in project blue where it belongs to one
    "allocations": "a", "instances": "a", "slices": "a-ub", "fabric-views": "a", "backup-paths": "guarded",
    "communicators": "talk", "peerings": "bridge", "reservations": "later", "deployments": "chat", "traffic": "busy",
    "quotas": "blue", "nodes": NODE, "npus": f"{NODE}-npu0", "supernodes": "sn0", "topology-versions": "current",
    "domains": "sn0-c00", "planes": "ub", "switches": "sn0-l2p0-k00", "links": f"{NODE}.ub-p0-k00", "models": "chat",
    "qos-classes": "Guaranteed", "forwarding-tables": "sn0-l2p0-k00", "drains": "care", "faults": "hurt",
    "defragmentations": "room", "members": NODE, "scaling-policies": "follow",
    "recovery-policies": "gentle", "usage-limits": "small", "reports": "found", "disruption-budgets": "office-hours", "processes": "none", "process-faults": "none", "workflow-drains": "upgrade",
    "maintenances": "century", "scenarios": "own", "scenario-runs": "rehearsal",
}  # fmt: skip
REPORT = {"node": NODE, "epoch": 1 << 40, "sequence": 1}
SLICE = {
    "allocation": "a", "instance": "a", "plane": "ub", "members": [NODE], "qosClass": "BestEffort", "weight": 2,
}  # fmt: skip
SCENARIO = {
    "title": "A free node loses power", "targets": {"victim": {"type": "node", "select": {"names": ["sn0-c02-n2"]}}},
    "stopConditions": [{"source": "none"}], "expect": [{"metric": "nodes.lost", "above": 0, "within": "5m"}],
    "method": [{"name": "dark", "fault": "node-down", "target": "victim", "at": "1h",
                "verify": {"hardware": "victim", "where": {"powered": "false"}}}],
}  # fmt: skip
REPORT_OF_A_RUN = {
    "experiment": "run", "title": "a walk", "document": {"finished": 9, "ttft": {"p50": 0.5}}, "html": "<h1>a walk</h1>",
}  # fmt: skip
BODIES: dict[tuple[str, str, str], Any] = {
    ("resource", "POST", "/v1/nodes/{}:cordon"): None,
    ("resource", "POST", "/v1/nodes/{}:uncordon"): None,
    **{("resource", "POST", f"/v1/nodes/{{}}:{verb}"): {"reason": "a walk"} for verb in NODE_STATES.verbs},
    ("resource", "POST", "/v1/nodes/{}:update"): {"firmware": "emulated-2"},
    ("resource", "POST", "/v1/npus/{}:release"): None,
    ("resource", "PUT", "/v1/allocations/{}"): {"nodes": 3},
    ("resource", "DELETE", "/v1/allocations/{}"): None,
    ("resource", "PUT", "/v1/allocations/{}/binding"): None,
    ("resource", "PUT", "/v1/allocations/{}/move"): {"nodes": 2, "placement": {"policy": "spread"}},
    ("resource", "DELETE", "/v1/allocations/{}/move"): None,
    ("resource", "POST", "/v1/allocations/{}:changeOver"): {"nodes": 2},
    ("resource", "POST", "/v1/allocations/{}:replace"): {"node": NODE},
    **{
        (service, "POST", f"/v1/operations/{{}}:{verb}"): None
        for service in ENGINES
        for verb in ("wait", "cancel", "resume")
    },
    **{(service, "POST", "/v1/operations/{}:abandon"): {"reason": "it is not wanted any more"} for service in ENGINES},
    **{(service, "PUT", "/v1/workflow-drains/{}"): {"reason": "an upgrade"} for service in ENGINES},
    **{(service, "DELETE", "/v1/workflow-drains/{}"): None for service in ENGINES},
    ("resource", "POST", "/v1/allocations/{}:repair"): {"node": NODE, "task": "restart"},
    ("resource", "POST", "/v1/allocations/{}:renew"): {"leaseS": 9999},
    ("resource", "POST", "/v1/allocations/{}:relocate"): {"node": NODE, "to": "sn0-c02-n0"},
    ("resource", "POST", "/v1/node-reports"): {
        "reports": [{**REPORT, "leaseS": 60, "status": "Clean", "generation": 0}]
    },
    ("resource", "POST", "/v1/node-cordons"): {"nodes": [NODE, "sn0-c00-n1"], "by": "walk"},
    ("resource", "POST", "/v1/plans"): {"nodes": 1},
    ("resource", "PUT", "/v1/reservations/{}"): {
        "nodes": 1,
        "startsAt": "2100-01-01T00:00:00Z",
        "durationS": 60,
    },
    ("resource", "DELETE", "/v1/reservations/{}"): None,
    ("resource", "PUT", "/v1/quotas/{}"): {"npus": 80},
    ("resource", "DELETE", "/v1/quotas/{}"): None,
    ("resource", "POST", "/v1/defragmentations"): {"nodes": 4},
    ("resource", "DELETE", "/v1/defragmentations/{}"): None,
    ("resource", "POST", "/v1/defragmentations/{}:approve"): None,
    ("resource", "POST", "/v1/defragmentations/{}:cancel"): None,
    ("resource", "POST", "/v1/defragmentations/{}:refuse"): {
        "allocation": "a",
        "node": NODE,
        "to": "sn0-c02-n0",
        "reason": "Conflict",
    },
    ("resource", "PUT", "/v1/supernodes/{}"): {"labels": {"a": "b"}},
    ("resource", "DELETE", "/v1/supernodes/{}"): None,
    ("resource", "POST", "/v1/domains/{}:close"): {"reason": "test"},
    ("resource", "POST", "/v1/domains/{}:open"): {"reason": "test"},
    ("link", "POST", "/v1/links/{}:undamp"): None,
    ("link", "PUT", "/v1/slices/{}"): SLICE,
    ("link", "DELETE", "/v1/slices/{}"): None,
    ("link", "POST", "/v1/slices/{}:program"): None,
    ("link", "POST", "/v1/link-reports"): {"reports": [{**REPORT, "leaseSeconds": 30}]},
    ("link", "PUT", "/v1/communicators/{}"): {"slice": "a-ub", "pattern": "ring"},
    ("link", "DELETE", "/v1/communicators/{}"): None,
    ("link", "PUT", "/v1/peerings/{}"): {"slices": ["a-vpc", "b-vpc"]},
    ("link", "DELETE", "/v1/peerings/{}"): None,
    ("link", "POST", "/v1/peerings/{}:accept"): {"project": "blue"},
    ("link", "PUT", "/v1/drains/{}"): {"elements": ["sn0-l2p1-k01"], "evenIfFloorsBreak": True},
    ("link", "DELETE", "/v1/drains/{}"): None,
    ("link", "POST", "/v1/what-ifs"): {"fail": [NODE]},
    ("compute", "PUT", "/v1/instances/{}"): {"nodes": 3},
    ("compute", "DELETE", "/v1/instances/{}"): None,
    ("compute", "POST", "/v1/instances/{}:retry"): None,
    ("compute", "POST", "/v1/instances/{}:stop"): None,
    ("compute", "POST", "/v1/instances/{}:start"): None,
    ("compute", "POST", "/v1/instances/{}:restart"): None,
    ("compute", "POST", "/v1/instances/{}:resize"): None,
    ("compute", "POST", "/v1/instances/{}:move"): {"policy": "spread", "level": "cabinet"},
    ("compute", "POST", "/v1/instances/{}:renew"): {"leaseS": 9999},
    ("compute", "PUT", "/v1/scaling-policies/{}"): {"scaleTargetRef": {"name": "b"}, "maxReplicas": 4},
    ("compute", "DELETE", "/v1/scaling-policies/{}"): None,
    ("compute", "PUT", "/v1/recovery-policies/{}"): {"instance": "b", "drainSeconds": 30},
    ("compute", "DELETE", "/v1/recovery-policies/{}"): None,
    ("compute", "PUT", "/v1/disruption-budgets/{}"): {"nodes": "10%"},
    ("compute", "DELETE", "/v1/disruption-budgets/{}"): None,
    ("compute", "PUT", "/v1/maintenances/{}"): {
        "target": {"supernode": "sn0"},
        "notBefore": "2100-01-01T00:00:00Z",
        "deadline": "2101-01-01T00:00:00Z",
    },
    ("compute", "DELETE", "/v1/maintenances/{}"): None,
    ("compute", "POST", "/v1/maintenances/{}:pause"): None,
    ("compute", "POST", "/v1/maintenances/{}:resume"): None,
    ("compute", "POST", "/v1/maintenances/{}:abort"): None,
    ("compute", "PUT", "/v1/scenarios/{}"): SCENARIO | {"seed": 1},
    ("compute", "DELETE", "/v1/scenarios/{}"): None,
    ("compute", "POST", "/v1/scenario-runs"): {"definition": SCENARIO},
    ("compute", "PUT", "/v1/scenario-runs/{}"): {"definition": SCENARIO},
    ("compute", "POST", "/v1/scenario-runs/{}:stop"): None,
    ("compute", "DELETE", "/v1/scenario-runs/{}"): None,
    ("infer", "PUT", "/v1/deployments/{}"): {"instance": "a", "cacheGbPerNode": 8},
    ("infer", "DELETE", "/v1/deployments/{}"): None,
    ("infer", "PUT", "/v1/deployments/{}/load"): {"requestsPerSecond": 2},
    ("infer", "DELETE", "/v1/deployments/{}/load"): None,
    ("infer", "PUT", "/v1/deployments/{}/drain"): {"nodes": ["sn0-c00-n0"]},
    ("infer", "DELETE", "/v1/deployments/{}/drain"): None,
    ("infer", "PUT", "/v1/deployments/{}/scale"): {"prefillNodes": 2, "decodeNodes": 2},
    ("infer", "DELETE", "/v1/deployments/{}/scale"): None,
    ("infer", "POST", "/v1/deployments/{}:warm"): {
        "model": "deepseek-r1",
        "blockTokens": 512,
        "blocks": [{"key": "1", "node": "sn0-c00-n0"}],
    },
    ("infer", "PUT", "/v1/usage-limits/{}"): {"requestsPerMinute": 600},
    ("infer", "DELETE", "/v1/usage-limits/{}"): None,
    ("infer", "PUT", "/v1/reports/{}"): REPORT_OF_A_RUN | {"title": "again"},
    ("infer", "DELETE", "/v1/reports/{}"): None,
    ("infer", "POST", "/v1/chat/completions"): {"model": "chat", "messages": [{"role": "user", "content": "hi"}]},
    ("infer", "POST", "/v1/completions"): {"model": "chat", "prompt": "hi"},
    ("agents", "PUT", "/v1/supernodes/{}"): None,
    ("agents", "DELETE", "/v1/supernodes/{}"): None,
    ("agents", "PUT", "/v1/faults/{}"): {"kind": "node-down", "target": "sn0-c02-n1"},
    ("agents", "DELETE", "/v1/faults/{}"): None,
    ("agents", "PUT", "/v1/process-faults/{}"): {"kind": "service-paused", "target": "resource"},
    ("agents", "DELETE", "/v1/process-faults/{}"): None,
    ("agents", "PUT", "/v1/traffic/{}"): {"slice": "a-ub", "gbpsPerNpu": 1},
    ("agents", "DELETE", "/v1/traffic/{}"): None,
}
QUERIES = {
    ("compute", "POST", "/v1/instances/{}:resize"): {"nodes": "3"},
    **{(service, "POST", "/v1/operations/{}:wait"): {"timeoutSeconds": "0.01"} for service in ENGINES},
    ("infer", "GET", "/v1/reports/{}/comparison"): {"with": "found"},
    ("link", "GET", "/v1/reachability"): {"from": "a-vpc", "to": "b-vpc"},
}


@dataclass(frozen=True)
class Request:
    """One route, and a request to it."""

    service: str
    rule: Rule
    path: str
    body: Any
    query: dict[str, str]
    takes: frozenset[str]
    """The parameters that its route declares."""

    def of(self, project: str) -> dict[str, str]:
        """What says that this project's is meant, where something is a project's."""
        return {"project": project} if "project" in self.takes else {}

    def __str__(self) -> str:
        return f"{self.service}: {self.rule.method} {self.rule.path}"


def api_routes(app: Any) -> Iterator[APIRoute]:
    """Every route that was registered, whichever way."""

    def walk(routes: Any) -> Iterator[APIRoute]:
        for each in routes:
            inner = getattr(each, "original_router", None)
            if isinstance(inner, APIRouter):
                yield from walk(inner.routes)
            elif isinstance(each, APIRoute):
                yield each

    return walk(app.router.routes)


def routes_of(app: Any) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Method, path and parameters of every route."""
    for route in api_routes(app):
        if route.path not in OPEN:
            for method in route.methods or ():
                yield method, route.path, frozenset(declared_names(route.dependant))


def every_request(stack: Stack, names: dict[str, str] | None = None) -> list[Request]:
    """A request to every route of the running services. Fails for one that nobody has written a body for."""
    found = []
    for service in stack.services:
        for method, path, takes in routes_of(stack.slots[service].transport.app):
            rule = RULES[service].find(method, path)
            assert rule is not None, f"{service}: there is no access rule for {method} {path}"
            key = (service, method, rule.path)
            collection = path.removeprefix("/v1/").partition("/")[0]
            if method != "GET":
                assert key in BODIES, f"{key}: which body does the walk send?"
            known = {**NAMES, **(names or {})}
            path = rule.path.replace("{}", known.get(collection, "none"))
            body = BODIES.get(key)
            if body is SLICE:
                body = SLICE | {"members": [known["members"]]}
            found.append(Request(service, rule, path, body, QUERIES.get(key, {}), takes))
    return found


def takes_header(stack: Stack, request: Request, header: str) -> bool:
    """Whether the route that answers this request declares a header."""
    for route in api_routes(stack.slots[request.service].transport.app):
        rule = RULES[request.service].find(request.rule.method, route.path)
        if rule is request.rule and request.rule.method in (route.methods or ()):
            return header in {each.alias for each in route.dependant.header_params}
    raise LookupError(str(request))


async def ask(
    stack: Stack,
    request: Request,
    token: str | None,
    key: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    **query: str | list[str],
) -> httpx.Response:
    """`key`: what is sent as Idempotency-Key; `if_match` as If-Match, `if_none_match` as If-None-Match."""
    client = stack.http[request.service]
    headers = {"Authorization": f"Bearer {token}" if token else "", "content-type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    if if_match is not None:
        headers["If-Match"] = if_match
    if if_none_match is not None:
        headers["If-None-Match"] = if_none_match
    content = None if request.body is None else json.dumps(request.body).encode()
    asked = {**request.query, **query}
    if token is None:
        client = httpx.AsyncClient(
            transport=stack.slots[request.service].transport, base_url=f"http://{request.service}"
        )
        headers.pop("Authorization")
    return await client.request(request.rule.method, request.path, params=asked, headers=headers, content=content)


def remembered(stack: Stack) -> dict[str, Any]:
    """All that the services have written down, and what the fleet was told."""
    found: dict[str, Any] = {}
    for name, slot in stack.slots.items():
        if slot.database is None:
            continue
        with slot.database.engine.connect() as connection:
            tables = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars().all()
            for table in tables:
                rows = connection.exec_driver_sql(f'SELECT * FROM "{table}"').all()
                found[f"{name}.{table}"] = sorted(map(repr, rows))
    assert stack.fleet is not None
    found["fleet"] = (dict(stack.fleet.faults), dict(stack.fleet.traffic.loads), list(stack.fleet.nodes))
    return found


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [name for name in before if before[name] != after.get(name)]
