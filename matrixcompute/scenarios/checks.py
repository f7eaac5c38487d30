"""checked: what no single field of a scenario can say of itself. A refusal names the field by its path."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import RESOURCE_NAME
from matrixcommon.model.resource_key import DEFAULT_PROJECT, project_of
from matrixcompute.scenarios.measures import MEASURES
from matrixcompute.scenarios.schema import KIND, Condition, Scenario, seconds
from matrixresource.agent.fault_catalogue import CATALOGUE

LONGEST_S = 7 * 86_400.0
NAME_LENGTH = 40


def parse(document: Any, name: str) -> tuple[str, Scenario]:
    """The name and the scenario that a document means: a resource of Kubernetes, or a scenario as it is, which then
    bears `name`. Raises InvalidField."""
    if not isinstance(document, dict):
        raise InvalidField("a scenario is a mapping of fields", field="")
    if document.get("kind", KIND) != KIND:
        raise InvalidField(f"{document['kind']!r} is no {KIND}", field="kind")
    if "spec" in document:
        name = (document.get("metadata") or {}).get("name") or name
        spec, place = document["spec"], "spec."
    else:
        spec, place = {key: each for key, each in document.items() if key not in ("kind", "apiVersion")}, ""
        name = spec.pop("name", name)
    name = checked_name(name)
    if isinstance(spec, dict):
        spec = {key: each for key, each in spec.items() if key != "suspend"}
    try:
        scenario = Scenario.model_validate(spec)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        raise InvalidField(first["msg"], field=place + _path(first["loc"])) from wrong
    return name, checked(scenario, place)


def checked_name(name: Any) -> str:
    """The name of a scenario. Raises InvalidField."""
    if not isinstance(name, str) or not RESOURCE_NAME.fullmatch(name) or len(name) > NAME_LENGTH:
        raise InvalidField(
            f"{str(name)[:80]!r} is no name: use 1 to {NAME_LENGTH} lower-case letters, digits and '-'", field="name"
        )
    return name


def _path(location: tuple[Any, ...]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return text.removeprefix(".")


def checked(scenario: Scenario, place: str = "") -> Scenario:
    """The scenario. Raises InvalidField, with `place` before the field's path."""

    def refuse(message: str, field: str) -> None:
        raise InvalidField(message, field=place + field)

    for key, shape in scenario.given.items():
        if shape.project not in (DEFAULT_PROJECT, project_of(key)):
            refuse("whose it is, its key says: project/name", f"given.{key}.project")
    names = [each.name for each in scenario.method]
    for number, action in enumerate(scenario.method):
        at = f"method[{number}]"
        if action.name in names[:number]:
            refuse(f"two actions are called {action.name}", f"{at}.name")
        kind = CATALOGUE.get(action.fault)
        if kind is None:
            refuse(f"there is no fault {action.fault!r}; `matrixctl fault kinds` lists them", f"{at}.fault")
            continue
        target = scenario.targets.get(action.target)
        if target is None:
            refuse(f"there is no target {action.target!r}", f"{at}.target")
        elif target.type not in kind.targets:
            refuse(f"{action.fault} strikes a {' or a '.join(kind.targets)}, no {target.type}", f"{at}.target")
        if action.duration is not None and seconds(action.duration) <= 0:
            refuse("a fault lasts longer than nothing", f"{at}.duration")
        for field in ("at", "duration"):
            if seconds(getattr(action, field) or "0s") > LONGEST_S:
                refuse("a scenario lasts at most a week", f"{at}.{field}")
    for field, each in scenario.all_conditions:
        _check_condition(scenario, each, field, refuse)
    _check_sources(scenario, refuse)
    for name, target in scenario.targets.items():
        if target.select.role is not None and target.select.instance is None:
            refuse("whose members or spares? name an instance", f"targets.{name}.select.role")
    for field, after in _afters(scenario):
        if after is not None and after not in names:
            refuse(f"there is no action {after!r}", f"{field}.after")
    for number, skipped in enumerate(scenario.control.skip if scenario.control else []):
        if skipped not in names:
            refuse(f"there is no action {skipped!r}", f"control.skip[{number}]")
    return scenario


def _check_condition(scenario: Scenario, each: Condition, field: str, refuse: Any) -> None:
    if getattr(each, "source", None) is not None:
        return
    if len(each.subjects) != 1:
        refuse("name one of metric, event, fault, instance, target or hardware", field)
    subject = each.subjects[0]
    if subject == "metric":
        if each.metric not in MEASURES:
            refuse(f"there is no metric {each.metric!r}; there are {', '.join(MEASURES)}", f"{field}.metric")
        if not each.bounded:
            refuse("a metric needs count, min, max, above or below", f"{field}.metric")
        if each.of is not None and each.metric in MEASURES and not MEASURES[each.metric].of_instance:
            refuse(f"{each.metric} belongs to no instance", f"{field}.of")
    elif subject not in ("event", "fault") and each.of is not None:
        refuse(f"{subject} says already what is looked at", f"{field}.of")
    if subject in ("target", "hardware") and getattr(each, subject) not in scenario.targets:
        refuse(f"there is no target {getattr(each, subject)!r}", f"{field}.{subject}")
    if subject == "hardware" and scenario.targets[str(each.hardware)].type == "switch":
        refuse("of a switch the hardware shows only the ports that lead to it: count hardware.ports-dark", field)
    if subject == "fault" and each.of is not None and each.of not in scenario.targets:
        refuse(f"there is no target {each.of!r}", f"{field}.of")
    if each.floor is not None and subject != "instance":
        refuse("floors are an instance's", f"{field}.floor")
    if subject in ("metric", "event") and (each.state or each.where):
        refuse(f"a {subject} has no state and no fields", f"{field}.{'state' if each.state else 'where'}")
    within = getattr(each, "within", "0s")
    if seconds(within) > LONGEST_S:
        refuse("a scenario lasts at most a week", f"{field}.within")


def _check_sources(scenario: Scenario, refuse: Any) -> None:
    for number, each in enumerate(scenario.stop_conditions):
        if each.source is not None and (len(scenario.stop_conditions) > 1 or each.subjects):
            refuse("`source: none` stands alone", f"stopConditions[{number}].source")


def _afters(scenario: Scenario) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = [(f"expect[{n}]", each.after) for n, each in enumerate(scenario.expect)]
    found += [
        (f"control.expect[{n}]", each.after)
        for n, each in enumerate(scenario.control.expect if scenario.control else [])
    ]
    return found
