"""The nouns of `get` and `describe`: which service serves them, and their table columns.

Columns are written as `output/columns.py` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from matrixcommon.model.errors import InvalidField
from services.matrixctl.output.listed_kind import ListedKind

LISTED_KINDS: tuple[ListedKind, ...] = (
    ListedKind(
        "supernodes",
        "resource",
        "name, nodes, available:availableNodes, allocated:allocatedNodes, lost:lostNodes",
        "npus, cpus, cabinets, topology:topologyVersion",
        "sn, supernode",
    ),
    ListedKind(
        "nodes",
        "resource",
        "name, state, agent, health, allocation, role",
        "stage, why:stateMessage, schedulable, power, faults:faults.length, desired:desiredRole, firmware, epoch",
        "no, node",
    ),
    ListedKind(
        "node-events",
        "resource",
        "at, type, about, reason, message",
        "name",
        "node-event, nev",
        order="at",
        whole=True,
        collection="events",
    ),
    ListedKind(
        "spares", "resource", "name, state, agent, health, allocation", "stage, schedulable", "spare", whole=True
    ),
    ListedKind(
        "npus", "resource", "name, node, health, allocation", "cabinet, faults:faults.length", "npu", whole=True
    ),
    ListedKind(
        "allocations",
        "resource",
        "name, state, nodes, npus, spares, project",
        "bound, priority, lease ends:expiresAt, preempted:preempts, generation, created:createdAt",
        "alloc, allocation",
        request_beside=("labels",),
    ),
    ListedKind(
        "reservations",
        "resource",
        "name, state, from:startsAt, to:endsAt, nodes:nodes.length, project",
        "where:nodes, created:createdAt",
        "reservation, res",
        request_beside=("labels", "startsAt", "durationS"),
    ),
    ListedKind(
        "quotas",
        "resource",
        "project:name, npus, allocated:usedNpus, cpus, allocated:usedCpus, gib:memoryGib, allocated:usedMemoryGib",
        "created:createdAt",
        "quota",
    ),
    ListedKind(
        "domains",
        "resource",
        "name, state, level, allocations:allocations.length, reason",
        "by, who lies there:allocations, changed:updatedAt",
        "domain, dom",
    ),
    ListedKind(
        "topology-versions",
        "resource",
        "name, state, what changed:summary, by, created:createdAt",
        "closed:topology.closed, deviations:topology.deviations.length",
        "topology-version, tv",
        order="number",
    ),
    ListedKind(
        "defragmentations",
        "resource",
        "name, state, moved:movesDone, moves:moves.length, npus, block:blockAfter",
        "before:blockBefore, level, room, message",
        "defragmentation, defrag",
    ),
    ListedKind("qos-classes", "link", "name, weight, floor, rank, sentence", "", "qos-class"),
    ListedKind(
        "slices",
        "link",
        "name, state, plane, qos:qosClass, instance, programmed",
        "floor gb/s per npu:floorGbpsPerNpu, kept:floorKeptGbpsPerNpu, survives:protection, protected, "
        "members:members.length, created:createdAt",
        "nsl, slice",
    ),
    ListedKind(
        "communicators",
        "link",
        "name, state, slice, pattern, routing, mean gb/s:traffic.meanGbps, slowest:traffic.slowestGbps",
        "ranks:traffic.ranks, flows:traffic.flows, cut:traffic.cut, offered:offeredGbps, "
        "moved last:traffic.lastChange.repathed, created:createdAt",
        "communicator, comm",
    ),
    ListedKind(
        "forwarding-tables",
        "link",
        "name, state, entries, aside, nowhere",
        "kind, sub-plane:subPlane, node, version",
        "forwarding-table, ft",
    ),
    ListedKind(
        "planes",
        "link",
        "name, state, links, down:linksDown, degraded:linksDegraded, slices",
        "sub-planes:subPlanes, gb/s per npu:npuGbps, latency us:latencyUs",
        "plane",
    ),
    ListedKind(
        "switches",
        "link",
        "name, state, plane, kind, ports, down:portsDown",
        "cabinet, node, sub-plane:subPlane",
        "switch, sw",
    ),
    ListedKind(
        "links",
        "link",
        "name, state, plane, kind, gb/s:gbps, floors:floorsGbps, reason",
        "built:builtGbps, lanes, damped until:dampedUntil, ends",
        "link",
    ),
    ListedKind(
        "drains",
        "link",
        "name, state, elements, ports, waiting for:waitingFor, why:reason",
        "message, generation, created:createdAt",
        "drain",
    ),
    ListedKind(
        "peerings",
        "link",
        "name, state, plane, slices, accepted by:acceptedBy, key:isolationKey",
        "rules:securityRules.length, message, created:createdAt",
        "peering",
    ),
    ListedKind(
        "backup-paths",
        "link",
        "name, plane, survives:protection, protected, paths:now.paths",
        "states:alternatives.length, message",
        "backup-path",
    ),
    ListedKind(
        "link-events",
        "link",
        "at, type, about, reason, message",
        "name",
        "link-event, lev",
        order="at",
        whole=True,
        collection="events",
    ),
    ListedKind(
        "instances",
        "compute",
        "name, state, nodes, ready:readyNodes, spares, operation",
        "npus, priority, lease ends:expiresAt, repairs, generation, project, created:createdAt",
        "cmi, instance",
    ),
    ListedKind(
        "faults",
        "compute",
        "node, component, code, level, action, instance",
        "state, since, raised by:raisedBy, message, name",
        "fault",
        means="faults that the control plane has detected; `get injected-faults` lists the injected ones",
    ),
    ListedKind(
        "injected-faults",
        "agents",
        "name, kind, target, parameters",
        "",
        "injected-fault",
        collection="faults",
        means="faults injected by `fault inject`; `get faults` lists those that the control plane has detected",
    ),
    ListedKind(
        "processes",
        "agents",
        "name, state, restarted, writable",
        "stalled",
        "process",
        means="services that scenarios can strike, if `matrixctl up` runs the stack; `status` lists all processes",
    ),
    ListedKind(
        "process-faults",
        "agents",
        "name, kind, target, parameters",
        "",
        "process-fault",
        means="faults that scenarios have injected into services, until undone",
    ),
    ListedKind(
        "operations",
        "compute",
        "name, service, target, verb, state, step, progress",
        "message, error:error.reason, started:startedAt, finished:finishedAt, recovered in (s):recovery.totalS",
        "op, operation",
        order="startedAt",
        others=("link", "resource"),
    ),
    ListedKind(
        "workflow-drains",
        "compute",
        "name, service, state, running, resting, waiting, reason",
        "grace (s):graceSeconds, created:createdAt",
        "workflow-drain, wd",
        others=("link", "resource"),
        means="drains that keep operations from starting, such as before an upgrade; create one with `operation drain`",
    ),
    ListedKind(
        "reliability",
        "compute",
        "name, recoveries, mttr (s):mttrS, ettr, down (s):downS",
        "since, detect:means.detectS, fence:means.fenceS, tell:means.tellS, drain:means.drainS, "
        "replace:means.replaceS, boot:means.bootS, serve:means.serveS",
        "ettr, mttr",
        whole=True,
        means="the cost of failures for each instance: mean time to recovery, effective training time ratio",
    ),
    ListedKind(
        "scaling-policies",
        "compute",
        "name, target:scaleTargetRef.name, min:minReplicas, max:maxReplicas, nodes:currentReplicas, "
        "desired:desiredReplicas, reason",
        "prefill:desiredPools.prefill, decode:desiredPools.decode, caching:desiredPools.caching, "
        "forecast:forecastReplicas, predictive, block, last scale:lastScaleTime, message",
        "sp, scaling-policy",
    ),
    ListedKind(
        "recovery-policies",
        "compute",
        "name, instance, drain (s):drainSeconds, rungs, when exhausted:onExhausted",
        "generation, labels",
        "rp, recovery-policy",
        means="recovery policies of instances and projects: how far recovery may go",
    ),
    ListedKind(
        "recovery-rules",
        "compute",
        "level:name, ladder:ladder.rung, drain (s):drainS",
        "timeouts (s):ladder.timeoutS",
        "recovery-rule",
        whole=True,
        means="what recovery tries for a failed member, by level of fault",
    ),
    ListedKind(
        "disruption-budgets",
        "compute",
        "name, state, nodes, supernode, reasons, schedule, duration (s):durationS",
        "message, generation, labels",
        "disruption-budget, db",
        means="limits on how many nodes maintenances may take out at once, for which actions and when",
    ),
    ListedKind(
        "maintenances",
        "compute",
        "name, state, target, action, done:counts.done, under way:counts.underWay, of:counts.total, reason:phaseReason",
        "firmware, not before:notBefore, deadline, failed:counts.failed, instances, message, started:startedAt, "
        "finished:finishedAt",
        "maintenance, mnt",
    ),
    ListedKind(
        "scenarios",
        "compute",
        "name, state, title, built in:builtIn, seed",
        "source, generation",
        "scenario, scn",
        means="scenarios that can be run by name; `get scenario-runs` lists the runs",
    ),
    ListedKind(
        "scenario-runs",
        "compute",
        "name, state, verdict, phase, scenario, message",
        "title, seed, seconds, history:historyHash, started:startedAt, finished:finishedAt",
        "scenario-run, run",
        order="createdAt",
    ),
    ListedKind(
        "events",
        "compute",
        "at, service, type, about, reason, message",
        "name",
        "ev, event",
        order="at",
        whole=True,
        others=("resource", "link"),
    ),
    ListedKind(
        "deployments",
        "infer",
        "name, state, instance, model, endpoint",
        "generation, created:createdAt",
        "deploy, deployment, cminf",
    ),
    ListedKind(
        "usage",
        "infer",
        "project, key, deployment, requests, prompt tokens:promptTokens, completion tokens:completionTokens",
        "cached tokens:cachedTokens",
        "usages",
        order="project",
        whole=True,
    ),
    ListedKind(
        "usage-limits",
        "infer",
        "name, key, model, requests/min:requestsPerMinute, used:used.requestsPerMinute.used, "
        "tokens/min:tokensPerMinute, used:used.tokensPerMinute.used, requests/day:requestsPerDay, "
        "used:used.requestsPerDay.used, tokens/day:tokensPerDay, used:used.tokensPerDay.used, "
        "in flight:requestsInFlight, used:used.requestsInFlight.used",
        "created:createdAt",
        "usage-limit, limits",
        means="limits on the use of served models by project and key",
    ),
    ListedKind(
        "reports",
        "infer",
        "name, experiment, title, author, kept:updatedAt",
        "bytes:sizeBytes, project, command",
        "report",
        order="createdAt",
        means="kept experiment reports; keep one with `experiment run --keep NAME`",
        content="/content",
    ),
)

OTHER_COMMANDS = {
    "capacity": "top capacity",
    "models": "get deployments",
    "routes": "topology path FROM TO",
    "stuck": "stuck",
    "telemetry": "top links",
    "traffic": "traffic list",
}
"""Words that are no nouns, and the commands that show them."""

_BY_WORD = {word: noun for noun in LISTED_KINDS for word in (noun.name, *noun.aliases.split(", "))}


def find_kind(word: str) -> ListedKind:
    """Find a noun by its plural, singular or short name. Raises InvalidField that lists all nouns."""
    noun = _BY_WORD.get(word.lower())
    if noun is None and (command := OTHER_COMMANDS.get(word.lower())) is not None:
        raise InvalidField(f"{word.lower()} is shown by `matrixctl {command}`", field="NOUN")
    if noun is None:
        raise unknown_word(word, "NOUN", sorted(each.name for each in LISTED_KINDS), _BY_WORD)
    return noun


def unknown_word(word: str, argument: str, names: Iterable[str], spellings: Iterable[str] = ()) -> InvalidField:
    """The error for a word that is none of `names`, with a suggestion if one is similar."""
    names = list(names)
    near = get_close_matches(word.lower(), [*names, *spellings], 1, cutoff=0.7)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return InvalidField(f"there is no {word!r}{meant} There are {', '.join(names)}", field=argument)
