"""Validators for allOf, anyOf, oneOf and not, which report the errors of the closest alternative."""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.schema.structural import Schema, Validator


def _mistake(text: str) -> Cause:
    """An error of a combinator as a whole, which names no field."""
    return errors.invalid("<nil>", "", text)


def junctions_of(schema: Schema, validator_of: Callable[[Schema], Validator]) -> list[Validator]:
    found: list[Validator] = []
    if schema.any_of:
        found.append(_any_of([validator_of(part) for part in schema.any_of]))
    if schema.one_of:
        found.append(_one_of([validator_of(part) for part in schema.one_of]))
    if schema.all_of:
        found.append(_all_of([validator_of(part) for part in schema.all_of]))
    if schema.negated is not None:
        found.append(_negated(validator_of(schema.negated)))
    return found


def _any_of(parts: list[Validator]) -> Validator:
    def check(value: Any, name: str, old: Any, found: list[Cause]) -> int:
        best, nearest = -1, list[Cause]()
        for part in parts:
            mistakes: list[Cause] = []
            matches = part(value, name, old, mistakes)
            if not mistakes:
                return matches
            if matches > best:
                best, nearest = matches, mistakes
        found.append(_mistake(f'"{name}" must validate at least one schema (anyOf)'))
        found.extend(nearest)
        return best

    return check


def _one_of(parts: list[Validator]) -> Validator:
    def check(value: Any, name: str, old: Any, found: list[Cause]) -> int:
        best, nearest, fitting, first = -1, list[Cause](), 0, 0
        for part in parts:
            mistakes: list[Cause] = []
            matches = part(value, name, old, mistakes)
            if not mistakes:
                fitting += 1
                first = first or matches
                nearest = []
            elif fitting == 0 and matches > best:
                best, nearest = matches, mistakes
        if fitting == 1:
            return first
        seen = "Found none valid" if fitting == 0 else f"Found {fitting} valid alternatives"
        found.append(_mistake(f'"{name}" must validate one and only one schema (oneOf). {seen}'))
        found.extend(nearest)
        return best if nearest else 0

    return check


def _all_of(parts: list[Validator]) -> Validator:
    def check(value: Any, name: str, old: Any, found: list[Cause]) -> int:
        matches = fitting = 0
        for part in parts:
            mistakes: list[Cause] = []
            matches += part(value, name, old, mistakes)
            fitting += not mistakes
            found.extend(mistakes)
        if fitting < len(parts):
            more = "" if fitting else ". None validated"
            found.append(_mistake(f'"{name}" must validate all the schemas (allOf){more}'))
        return matches

    return check


def _negated(part: Validator) -> Validator:
    def check(value: Any, name: str, old: Any, found: list[Cause]) -> int:
        mistakes: list[Cause] = []
        part(value, name, old, mistakes)
        if not mistakes:
            found.append(_mistake(f'"{name}" must not validate the schema (not)'))
        return 0

    return check
