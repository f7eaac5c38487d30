"""What those do whose instances are scaled: they serve models, whose load rises and falls, and make, change and delete
ScalingPolicies, over REST and as resources of Kubernetes. Half of all lives have some of it.
"""

from __future__ import annotations

from random import Random
from typing import Any

from matrixcommon.model.resource_key import key_of
from matrixcontainer.client.client import SCALING_POLICY
from tests.simulation.drawing import Drawn, booleans, fixed_dictionaries, integers, just, sampled_from
from tests.simulation.rest_actions import ANY, UNSHOWN, Action, Happening, pick
from tests.simulation.whole_stack.kubernetes import NAMES
from tests.simulation.whole_stack.life import SimulatedLife

BEYOND = 200
"""More nodes than there are."""
POLICIES = sampled_from(["p0", "p1", "p2"])
LOADS = sampled_from([0.0, 0.5, 1.5, 2.5, 4.0, 6.0])
"""In nodes; instances of these lives have up to six."""
DOWN = {"stabilizationWindowSeconds": 15, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
QUICK: dict[str, Any] = {"scaleDown": DOWN}
QUEUE = {"metric": {"name": "queued"}, "target": {"type": "AverageValue", "averageValue": 2.0}}
METRIC = {"type": "Object", "object": QUEUE}
SPECS = fixed_dictionaries(
    {
        "minReplicas": sampled_from([0, 1, 1, 2, 3, BEYOND]),
        "maxReplicas": integers(3, 8),
        "warmSpares": sampled_from([0, 1, 1, 2, 4]),
        "behavior": sampled_from([{}, QUICK, QUICK]),
    },
    optional={
        "block": just(2),
        "predictive": sampled_from(["Off", "Off", "Preview"]),
        "cooldownPeriod": sampled_from([30, 300]),
        "pools": just({}),
        "schedules": just([{"name": "always", "start": "00:00", "end": "23:59", "minReplicas": 3}]),
    },
)
"""With `warmSpares` more often than not."""


async def put_policy(life: SimulatedLife, name: str, which: int, spec: dict[str, Any], metric: bool) -> None:
    """Make it, or change it where it is there: a policy keeps its target, and a target has one."""
    project, target = pick(life, "instances", which)
    known = life.known.keyed("scaling-policies").get(key_of(project, name))
    if known is not None:
        target = known["scaleTargetRef"]["name"]
    if metric and "pools" not in spec:
        spec = spec | {"metrics": [METRIC]}
    life.scales(key_of(project, target))
    if spec["minReplicas"] == BEYOND:
        spec = spec | {"maxReplicas": BEYOND}
    body = {"project": project, "scaleTargetRef": {"name": target}, **spec}
    answer = await life.ask("compute", "PUT", f"/v1/scaling-policies/{name}", body)
    shown = {field: answer.document.get(field) for field in ("minReplicas", "maxReplicas", "warmSpares")}
    life.wrote(answer, "scaling-policies", key_of(project, name), shown)


async def change_spares(life: SimulatedLife, which: int, warm: int) -> None:
    """Another number of spares in a policy that is there, all else as it is."""
    policies = life.known["scaling-policies"]
    if not policies:
        return
    shown = policies[which % len(policies)]
    asked = {field: shown[field] for field in ("project", "scaleTargetRef", "minReplicas", "maxReplicas", "behavior")}
    path = f"/v1/scaling-policies/{shown['name']}"
    answer = await life.ask("compute", "PUT", path, asked | {"warmSpares": warm})
    key = key_of(shown["project"], shown["name"])
    life.wrote(answer, "scaling-policies", key, {"warmSpares": answer.document.get("warmSpares")})


async def delete_policy(life: SimulatedLife, which: int) -> None:
    policies = life.known["scaling-policies"] or [{"project": "default", "name": UNSHOWN}]
    project, name = (policies[which % len(policies)][field] for field in ("project", "name"))
    answer = await life.ask("compute", "DELETE", f"/v1/scaling-policies/{name}", project=project)
    life.wrote(answer, "scaling-policies", key_of(project, name), None)


async def want_spares(life: SimulatedLife, which: int, nodes: int, spares: int) -> None:
    """An instance with spares for a policy to count on."""
    project, name = pick(life, "instances", which)
    if project == "default" and name in NAMES:
        return
    key = key_of(project, name)
    answer = await life.ask(
        "compute", "PUT", f"/v1/instances/{name}", {"nodes": nodes, "spares": spares, "project": project}
    )
    life.forget(answer, "instances", key)


async def offer(life: SimulatedLife, which: int, load: float) -> None:
    """So much work comes in for what is served there."""
    project, name = pick(life, "instances", which)
    life.stack.served.serve(key_of(project, name), load)


async def policy_of_kubernetes(life: SimulatedLife, name: str, warm: int, most: int, gone: bool) -> None:
    """A ScalingPolicy for an instance of Kubernetes, with its name."""
    life.scales(key_of("default", name))
    if gone:
        await life.delete(name, SCALING_POLICY)
    else:
        spec = {"scaleTargetRef": {"name": name}, "minReplicas": 1, "maxReplicas": most, "warmSpares": warm}
        await life.apply(name, spec, SCALING_POLICY)


async def begin(life: SimulatedLife) -> None:
    """An instance with spares, what is served there, and a policy that counts on them."""
    key, body = "i0", {"nodes": 2, "spares": 2}
    life.forget(await life.ask("compute", "PUT", f"/v1/instances/{key}", body), "instances", key)
    life.stack.served.serve(key, 1.5)
    life.scales(key)
    asked = {"scaleTargetRef": {"name": key}, "maxReplicas": 6, "warmSpares": 2, "behavior": QUICK}
    answer = await life.ask("compute", "PUT", "/v1/scaling-policies/p0", asked)
    life.wrote(answer, "scaling-policies", "p0", {"maxReplicas": 6, "warmSpares": 2})


ANYBODY = {"which": ANY}
SCALING: tuple[tuple[Action, dict[str, Drawn], float], ...] = (
    (put_policy, {"name": POLICIES, **ANYBODY, "spec": SPECS, "metric": booleans()}, 3.0),
    (change_spares, {**ANYBODY, "warm": sampled_from([0, 1, 2, 48])}, 1.0),
    (delete_policy, ANYBODY, 0.5),
    (want_spares, {**ANYBODY, "nodes": integers(1, 4), "spares": integers(1, 3)}, 1.5),
    (offer, {**ANYBODY, "load": LOADS}, 5.0),
    (policy_of_kubernetes, {
        "name": sampled_from(NAMES), "warm": sampled_from([0, 1, 2]), "most": integers(2, 6), "gone": booleans(),
    }, 1.0),
)  # fmt: skip
"""Each with what is drawn for it, and how often it is done beside the others."""


def is_scaled(seed: int) -> bool:
    """Whether somebody scales instances in the life of that seed: half of those with one MatrixCompute, and half of those
    with two."""
    return Random(f"{seed}:scaling").random() < 0.5


def scaling(life: SimulatedLife, random: Random) -> str:
    action, drawn, _ = random.choices(SCALING, [weight for _, _, weight in SCALING])[0]
    happening = Happening(action, {name: each.draw(random) for name, each in drawn.items()})
    life.spawn(happening.on(life))
    return f"scaling {happening}"
