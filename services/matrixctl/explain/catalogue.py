"""What `matrixctl explain` knows, read from where it is declared: kinds of the REST services from their views and
requests, Kubernetes kinds from their CRDs, states from their state machines, reasons from their list.

Everything has a name; fields have a dotted path, such as `instances.conditions.reason`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from matrixcommon.api.authorization import ResourceKind
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.reasons import Reason, reasons
from matrixcommon.model.state_machine import State, StateMachine
from services.matrixctl.output.resource_kinds import LISTED_KINDS, ListedKind, unknown_word

ACCESS = {
    "resource": "matrixresource.api.access",
    "link": "matrixlink.api.access",
    "compute": "matrixcompute.access",
    "infer": "infer_workload.access",
    "agents": "services.node_agent.access",
}
"""The module in which each service declares its kinds."""

MACHINES = {
    "nodes": "matrixresource.nodes.states:NODE_STATES",
    "allocations": "matrixresource.store.allocation_states:ALLOCATION_STATES",
    "reservations": "matrixresource.store.reservations:RESERVATION_STATES",
    "defragmentations": "matrixresource.store.defragmentations:DEFRAGMENTATION_STATES",
    "slices": "matrixlink.model.slice_states:SLICE_STATES",
    "instances": "matrixcompute.model.states:INSTANCE_STATES",
    "maintenances": "matrixcompute.maintenance.states:MAINTENANCE_STATES",
    "scenario-runs": "matrixcompute.scenarios.states:SCENARIO_RUN_STATES",
    "deployments": "infer_workload.serving.states:DEPLOYMENT_STATES",
}
"""The state machine of each kind."""

CONDITIONS = {
    "AbleToScale": "whether the next decision may change the size of what a policy scales",
    "Admitted": "whether a slice's bandwidth is reserved",
    "CacheMemory": "whether the caches of a deployment have the memory they requested",
    "Damped": "whether a link is treated as down because it changed state too often",
    "Degraded": "whether it continues although something is missing or broken",
    "Expired": "whether its lease has ended",
    "Grown": "whether it was grown in place, and how many of the last new members were its spares",
    "Injected": "whether the fault is present in the emulated hardware",
    "InventoryMatches": "whether the agent found the parts that the topology lists",
    "LaidOut": "whether the model is laid out on the instance's dies",
    "LinksReady": "whether all planes are programmed on every member",
    "LinksUp": "whether every link that a slice uses is up",
    "Maintenance": "whether a maintenance of some of its nodes is announced or in progress",
    "NodesReady": "whether every member is ready",
    "Preempted": "whether a request of higher priority has taken its nodes",
    "Progressing": "whether a change is in progress",
    "Protected": "whether a backup path is reserved for every failure that a slice is protected against",
    "QosSatisfied": "whether the guaranteed bandwidth is provided",
    "Ready": "whether it is ready for use",
    "RoutesProgrammed": "whether every member's agent has reported its routes programmed, for this generation",
    "ScalingActive": "whether every metric of a policy has a value",
    "ScalingLimited": "whether minReplicas, maxReplicas or a rate limit restricts a policy",
    "Scheduled": "whether nodes and spares are reserved",
    "SparesAvailable": "whether the requested number of spares is ready",
    "Stuck": "whether it cannot continue by itself",
    "SupernodeExists": "whether the supernode that a disruption budget names exists",
    "Synced": "whether MatrixCompute has the spec of this generation",
}
"""Condition types, each with the question that its status answers."""


@dataclass(frozen=True)
class Field:
    """One field: its type in words, its meaning, and the fields inside it."""

    name: str
    type: str
    means: str
    required: bool = False
    inside: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind: its meaning, where to get it, its states, its fields as shown, and the fields that may be set."""

    name: str
    where: str
    means: str
    fields: tuple[Field, ...]
    settable: tuple[Field, ...] = ()
    states: tuple[State, ...] = ()
    aliases: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Word:
    """Everything that one word means as a reason, a condition type or a state."""

    name: str
    reason: Reason | None
    condition: str
    states: tuple[tuple[str, State], ...]


# --- kinds


def rest_kind(noun: ListedKind) -> Kind:
    """The kind of a noun of `get`."""
    declared = declared_kind(noun)
    view = declared.view
    machine = machine_of(noun.name)
    where = f"{noun.service}: {noun.path}; `matrixctl get {noun.name}`"
    return Kind(
        noun.name,
        where,
        noun.means or _first_paragraph(view.__doc__ if view else "") or f"{noun.name} of {noun.service}",
        _fields(view.model_json_schema(by_alias=True, mode="serialization")) if view else (),
        _fields(declared.request.model_json_schema(by_alias=True)) if declared.request else (),
        tuple(machine.states.values()) if machine else (),
        tuple(noun.aliases.split(", ")),
    )


def declared_kind(noun: ListedKind) -> ResourceKind:
    access = importlib.import_module(ACCESS[noun.service]).ACCESS
    collection = noun.collection or noun.name
    found: ResourceKind = next(each for each in access.kinds if each.collection == collection)
    return found


def machine_of(noun: str) -> StateMachine | None:
    if noun not in MACHINES:
        return None
    module, _, name = MACHINES[noun].partition(":")
    machine: StateMachine = getattr(importlib.import_module(module), name)
    return machine


@cache
def custom_kinds() -> dict[str, Kind]:
    """The kinds of the Kubernetes API, by kind."""
    from matrixcontainer.operator.crds import custom_resource_definitions

    found = {}
    for definition in custom_resource_definitions():
        names, version = definition["spec"]["names"], definition["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        found[names["kind"]] = Kind(
            names["kind"],
            f"{definition['spec']['group']}/{version['name']}; `kubectl get {names['plural']}`",
            _first_paragraph(schema.get("description", "")),
            _fields(schema),
            aliases=(names["plural"], names["singular"], *names.get("shortNames", ())),
        )
    return found


def kinds() -> Iterator[Kind]:
    """All of them."""
    yield from (rest_kind(noun) for noun in LISTED_KINDS)
    yield from custom_kinds().values()


def lookup_kind(word: str) -> Kind | None:
    """The kind that a word names: a Kubernetes kind in its exact spelling, else a noun of `get`, else a Kubernetes kind
    by its plural or short name."""
    if word in custom_kinds():
        return custom_kinds()[word]
    for noun in LISTED_KINDS:
        if word.lower() in (noun.name, *noun.aliases.split(", ")):
            return rest_kind(noun)
    by_alias = {alias: kind for kind in custom_kinds().values() for alias in (kind.name.lower(), *kind.aliases)}
    return by_alias.get(word.lower())


def lookup_field(kind: Kind, path: str) -> Field:
    """The field at a dotted path. Raises InvalidField that lists the fields at the point where the path fails."""
    found = Field(kind.name, "object", kind.means, inside=(*kind.fields, *kind.settable))
    for step in path.split("."):
        inside = {each.name: each for each in reversed(found.inside)}
        if step not in inside:
            raise unknown_word(step, "WORD", sorted(inside) or ["no fields inside it"])
        found = inside[step]
    return found


# --- fields


def _fields(schema: dict[str, Any]) -> tuple[Field, ...]:
    return _inside(schema, schema.get("$defs", {}), frozenset())


def _inside(schema: dict[str, Any], definitions: dict[str, Any], seen: frozenset[str]) -> tuple[Field, ...]:
    required = schema.get("required", ())
    return tuple(
        _field(name, part, name in required, definitions, seen) for name, part in schema.get("properties", {}).items()
    )


def _field(name: str, part: dict[str, Any], required: bool, definitions: dict[str, Any], seen: frozenset[str]) -> Field:
    shape, type = _shape(part, definitions)
    title = str(shape.get("title", ""))
    inner = () if title in seen else _inside(shape, definitions, seen | {title} if title else seen)
    return Field(name, type, " ".join(str(part.get("description", "")).split()), required, inner)


def _shape(part: dict[str, Any], definitions: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The schema with the inner fields, and the type in words."""
    if "$ref" in part:
        return _shape(definitions.get(part["$ref"].rpartition("/")[2], {}), definitions)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in part:
            shapes = [_shape(each, definitions) for each in part[key] if each.get("type") != "null"]
            inside = next((shape for shape, _ in shapes if shape.get("properties")), {})
            return inside, " or ".join(dict.fromkeys(type for _, type in shapes)) or "object"
    if "enum" in part:
        return part, " | ".join(map(str, part["enum"]))
    if "const" in part:
        return part, str(part["const"])
    if part.get("type") == "array":
        shape, type = _shape(part.get("items", {}), definitions)
        return shape, f"list of {type}"
    values = part.get("additionalProperties")
    if isinstance(values, dict) and values:
        shape, type = _shape(values, definitions)
        return shape, f"map of {type}"
    return part, str(part.get("type", "anything"))


# --- words


def lookup_word(word: str) -> Word | None:
    """The meaning of a word of a condition, event, refusal or state, ignoring case; None if it is unknown."""
    every = words()
    return every.get(word) or {name.lower(): found for name, found in every.items()}.get(word.lower())


@cache
def words() -> dict[str, Word]:
    states: dict[str, list[tuple[str, State]]] = {}
    for kind in MACHINES:
        machine = machine_of(kind)
        for name, state in machine.states.items() if machine else ():
            states.setdefault(name, []).append((kind, state))
    names = dict.fromkeys([*reasons(), *CONDITIONS, *states])
    return {
        name: Word(name, reasons().get(name), CONDITIONS.get(name, ""), tuple(states.get(name, ()))) for name in names
    }


def _first_paragraph(text: str | None) -> str:
    """The first paragraph, joined into one line."""
    return " ".join((text or "").strip().partition("\n\n")[0].split())


def unknown_word_error(word: str) -> InvalidField:
    """The error for an unknown word."""
    names = [*(noun.name for noun in LISTED_KINDS), *custom_kinds(), *words()]
    refusal = unknown_word(word, "WORD", names, [alias for noun in LISTED_KINDS for alias in noun.aliases.split(", ")])
    text = refusal.message.partition(" There are ")[0]
    return InvalidField(f"{text} `matrixctl explain` lists everything that it explains", field="WORD")
