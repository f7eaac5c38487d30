"""checked: the rules of a scenario that span several fields. A refusal names the field by its path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import RESOURCE_NAME
from matrixcommon.model.resource_key import DEFAULT_PROJECT, project_of
from matrixcommon.model.validation import validation_message
from matrixcompute.scenarios.metrics import METRICS
from matrixcompute.scenarios.schema import KIND, Action, Condition, Expectation, Scenario, seconds
from matrixresource.agent.fault_catalogue import CATALOGUE

DURATION_S_MAX = 7 * 86_400.0
NAME_LENGTH_MAX = 40

Problem = tuple[str, str]
"""The path of a field, and the message that says what is wrong with it."""


def parse(document: Any, name: str) -> tuple[str, Scenario]:
    """The name and scenario of a document: a Kubernetes resource, or a bare scenario, whose name defaults to `name`.
    Raises InvalidField."""
    if not isinstance(document, dict):
        raise InvalidField("a scenario has to be a mapping of fields", field="")
    if document.get("kind", KIND) != KIND:
        raise InvalidField(f"kind has to be {KIND}, not {document['kind']!r}", field="kind")
    if "spec" in document:
        name = (document.get("metadata") or {}).get("name") or name
        spec, path_prefix = document["spec"], "spec."
    else:
        spec, path_prefix = {key: each for key, each in document.items() if key not in ("kind", "apiVersion")}, ""
        name = spec.pop("name", name)
    name = validate_name(name)
    if isinstance(spec, dict):
        spec = {key: each for key, each in spec.items() if key != "suspend"}
    try:
        scenario = Scenario.model_validate(spec)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidField(validation_message(first), field=path_prefix + _path(first["loc"])) from error
    return name, validate(scenario, path_prefix)


def validate_name(name: Any) -> str:
    """The name, if it is a legal name of a scenario. Raises InvalidField."""
    if not isinstance(name, str) or not RESOURCE_NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidField(
            f"{str(name)[:80]!r} is no name: use 1 to {NAME_LENGTH_MAX} lower-case letters, digits and '-'",
            field="name",
        )
    return name


def _path(location: tuple[Any, ...]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return text.removeprefix(".")


def validate(scenario: Scenario, path_prefix: str = "") -> Scenario:
    """The scenario. Raises InvalidField for the first problem, with `path_prefix` before the field's path."""
    for field, message in _problems(scenario):
        raise InvalidField(message, field=path_prefix + field)
    return scenario


def _problems(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with a scenario. Lazy: a later check may rely on the earlier ones having found nothing."""
    yield from _problems_of_given(scenario)
    for number, action in enumerate(scenario.method):
        yield from _problems_of_action(scenario, number, action)
    for field, condition in scenario.all_conditions:
        yield from _problems_of_condition(scenario, condition, field)
    yield from _problems_of_stop_conditions(scenario)
    yield from _problems_of_targets(scenario)
    yield from _problems_of_references(scenario)


def _problems_of_given(scenario: Scenario) -> Iterator[Problem]:
    for key, shape in scenario.given.items():
        if shape.project not in (DEFAULT_PROJECT, project_of(key)):
            yield f"given.{key}.project", "write the project in the key, as project/name"


def _problems_of_action(scenario: Scenario, number: int, action: Action) -> Iterator[Problem]:
    at = f"method[{number}]"
    if action.name in {each.name for each in scenario.method[:number]}:
        yield f"{at}.name", f"two actions have the name {action.name!r}"
    kind, target = CATALOGUE.get(action.fault), scenario.targets.get(action.target)
    if kind is None:
        yield f"{at}.fault", f"there is no fault kind {action.fault!r}; `matrixctl fault kinds` lists them"
    elif target is None:
        yield f"{at}.target", f"there is no target {action.target!r}"
    elif target.type not in kind.targets:
        yield f"{at}.target", f"{action.fault} affects a {' or a '.join(kind.targets)}, not a {target.type}"
    if action.duration is not None and seconds(action.duration) <= 0:
        yield f"{at}.duration", "duration has to be above 0"
    for field, duration in (("at", action.at), ("duration", action.duration)):
        if duration is not None and seconds(duration) > DURATION_S_MAX:
            yield f"{at}.{field}", "a scenario may last a week at most"


def _problems_of_condition(scenario: Scenario, condition: Condition, field: str) -> Iterator[Problem]:
    if getattr(condition, "source", None) is not None:
        return
    if len(condition.subjects) != 1:
        yield field, "set exactly one of metric, event, fault, instance, target and hardware"
    subject = condition.subjects[0]
    if subject == "metric":
        yield from _problems_of_metric(condition, field)
    elif subject not in ("event", "fault") and condition.of is not None:
        yield f"{field}.of", f"of goes with metric, event or fault, not with {subject}"
    if subject in ("target", "hardware") and getattr(condition, subject) not in scenario.targets:
        yield f"{field}.{subject}", f"there is no target {getattr(condition, subject)!r}"
    if subject == "hardware" and scenario.targets[str(condition.hardware)].type == "switch":
        yield (
            field,
            "the hardware of a switch cannot be read, only the ports that lead to it: use metric hardware.ports-dark",
        )
    if subject == "fault" and condition.of is not None and condition.of not in scenario.targets:
        yield f"{field}.of", f"there is no target {condition.of!r}"
    if condition.floor is not None and subject != "instance":
        yield f"{field}.floor", "floor applies to an instance only"
    if subject in ("metric", "event") and (condition.state or condition.where):
        yield f"{field}.{'state' if condition.state else 'where'}", f"state and where do not apply to a {subject}"
    if seconds(getattr(condition, "within", "0s")) > DURATION_S_MAX:
        yield f"{field}.within", "a scenario may last a week at most"


def _problems_of_metric(condition: Condition, field: str) -> Iterator[Problem]:
    metric = METRICS.get(condition.metric or "")
    if metric is None:
        yield f"{field}.metric", f"there is no metric {condition.metric!r}; known: {', '.join(METRICS)}"
    if not condition.bounded:
        yield f"{field}.metric", "a metric needs count, min, max, above or below"
    if condition.of is not None and metric is not None and not metric.of_instance:
        yield f"{field}.of", f"{condition.metric} is not counted per instance: leave of out"


def _problems_of_stop_conditions(scenario: Scenario) -> Iterator[Problem]:
    for number, each in enumerate(scenario.stop_conditions):
        if each.source is not None and (len(scenario.stop_conditions) > 1 or each.subjects):
            yield (
                f"stopConditions[{number}].source",
                "`source: none` has to be the only stop condition, without other fields",
            )


def _problems_of_targets(scenario: Scenario) -> Iterator[Problem]:
    for name, target in scenario.targets.items():
        if target.select.role is not None and target.select.instance is None:
            yield f"targets.{name}.select.role", "role needs an instance: set select.instance"


def _problems_of_references(scenario: Scenario) -> Iterator[Problem]:
    """References from expectations and from the control to actions that do not exist."""
    control = scenario.control
    references = [*_references(scenario.expect, "expect")]
    if control is not None:
        references += _references(control.expect, "control.expect")
        references += [(f"control.skip[{number}]", skipped) for number, skipped in enumerate(control.skip)]
    names = {each.name for each in scenario.method}
    for field, name in references:
        if name not in names:
            yield field, f"there is no action {name!r}"


def _references(expectations: list[Expectation], at: str) -> Iterator[tuple[str, str]]:
    for number, each in enumerate(expectations):
        if each.after is not None:
            yield f"{at}[{number}].after", each.after
