"""Validators for allOf, anyOf, oneOf and not, which report the errors of the closest alternative."""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.schema.structural import Schema, Validator


def _cause(text: str) -> Cause:
    """An error of a combinator as a whole, which names no field."""
    return errors.invalid("<nil>", "", text)


def compile_junctions(schema: Schema, validator_of: Callable[[Schema], Validator]) -> list[Validator]:
    causes: list[Validator] = []
    if schema.any_of:
        causes.append(_any_of([validator_of(part) for part in schema.any_of]))
    if schema.one_of:
        causes.append(_one_of([validator_of(part) for part in schema.one_of]))
    if schema.all_of:
        causes.append(_all_of([validator_of(part) for part in schema.all_of]))
    if schema.negated is not None:
        causes.append(_negated(validator_of(schema.negated)))
    return causes


def _any_of(parts: list[Validator]) -> Validator:
    def check(value: Any, name: str, old: Any, causes: list[Cause]) -> int:
        best, nearest = -1, list[Cause]()
        for part in parts:
            part_causes: list[Cause] = []
            matches = part(value, name, old, part_causes)
            if not part_causes:
                return matches
            if matches > best:
                best, nearest = matches, part_causes
        causes.append(_cause(f'"{name}" must validate at least one schema (anyOf)'))
        causes.extend(nearest)
        return best

    return check


def _one_of(parts: list[Validator]) -> Validator:
    def check(value: Any, name: str, old: Any, causes: list[Cause]) -> int:
        best, nearest, fitting, first = -1, list[Cause](), 0, 0
        for part in parts:
            part_causes: list[Cause] = []
            matches = part(value, name, old, part_causes)
            if not part_causes:
                fitting += 1
                first = first or matches
                nearest = []
            elif fitting == 0 and matches > best:
                best, nearest = matches, part_causes
        if fitting == 1:
            return first
        seen = "Found none valid" if fitting == 0 else f"Found {fitting} valid alternatives"
        causes.append(_cause(f'"{name}" must validate one and only one schema (oneOf). {seen}'))
        causes.extend(nearest)
        return best if nearest else 0

    return check


def _all_of(parts: list[Validator]) -> Validator:
    def check(value: Any, name: str, old: Any, causes: list[Cause]) -> int:
        matches = fitting = 0
        for part in parts:
            part_causes: list[Cause] = []
            matches += part(value, name, old, part_causes)
            fitting += not part_causes
            causes.extend(part_causes)
        if fitting < len(parts):
            more = "" if fitting else ". None validated"
            causes.append(_cause(f'"{name}" must validate all the schemas (allOf){more}'))
        return matches

    return check


def _negated(part: Validator) -> Validator:
    def check(value: Any, name: str, old: Any, causes: list[Cause]) -> int:
        part_causes: list[Cause] = []
        part(value, name, old, part_causes)
        if not part_causes:
            causes.append(_cause(f'"{name}" must not validate the schema (not)'))
        return 0

    return check
