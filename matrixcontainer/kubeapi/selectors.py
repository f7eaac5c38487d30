"""Label and field selectors: parsed once, asked often; a malformed one is a 400."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matrixcontainer.kubeapi.errors import bad_request

LABEL_NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")
PREFIX = re.compile(r"^(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$")
SET_FORM = re.compile(r"^([^\s!=(),]+)\s+(in|notin)\s*\(([^()]*)\)$")
ORDER_FORM = re.compile(r"^([^\s!=(),<>]+)\s*([<>])\s*(-?\d+)$")
EQUAL_FORM = re.compile(r"^([^\s!=(),]+)\s*(==|=|!=)\s*([^\s!=(),]*)$")


def is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(LABEL_NAME.match(name)) and (not slash or bool(PREFIX.match(prefix)))


def is_label_value(value: str) -> bool:
    return value == "" or bool(LABEL_NAME.match(value))


@dataclass(frozen=True)
class Requirement:
    key: str
    operator: str  # in, notin, exists, absent, <, >
    values: frozenset[str] = frozenset()

    def holds(self, labels: dict[str, str]) -> bool:
        if self.operator == "in":
            return labels.get(self.key) in self.values if self.key in labels else False
        if self.operator == "notin":
            return labels.get(self.key) not in self.values
        if self.operator in "<>":
            return self._in_order(labels.get(self.key, ""))
        return (self.key in labels) == (self.operator == "exists")

    def _in_order(self, text: str) -> bool:
        """Labels that are no integers are in no order."""
        if not re.fullmatch(r"[+-]?\d+", text):
            return False
        bound = int(next(iter(self.values)))
        return int(text) < bound if self.operator == "<" else int(text) > bound


class LabelSelector:
    """`app=web,tier in (a, b),!old` as a list of requirements; empty matches everything."""

    def __init__(self, text: str) -> None:
        self.requirements = [parse_requirement(part) for part in split_outside_brackets(text)]

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, obj: dict[str, Any]) -> bool:
        return self.hold(obj.get("metadata", {}).get("labels") or {})

    def hold(self, labels: dict[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)


def split_outside_brackets(text: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    if depth:
        raise bad_request(f"unable to parse requirement: unbalanced brackets in {text!r}")
    parts.append(part.strip())
    return [part for part in parts if part]


def parse_requirement(text: str) -> Requirement:
    if match := SET_FORM.match(text):
        values = frozenset(value.strip() for value in match[3].split(","))
        requirement = Requirement(match[1], match[2], values)
    elif match := ORDER_FORM.match(text):
        requirement = Requirement(match[1], match[2], frozenset([match[3]]))
    elif match := EQUAL_FORM.match(text):
        requirement = Requirement(match[1], "notin" if match[2] == "!=" else "in", frozenset([match[3]]))
    elif text.startswith("!"):
        requirement = Requirement(text[1:].strip(), "absent")
    else:
        requirement = Requirement(text, "exists")
    if not is_label_key(requirement.key):
        raise bad_request(f'unable to parse requirement: key: Invalid value: "{requirement.key}": not a label key')
    for value in requirement.values:
        if not is_label_value(value):
            raise bad_request(f'unable to parse requirement: values: Invalid value: "{value}": not a label value')
    return requirement


Accessor = Callable[[dict[str, Any]], str]


class FieldSelector:
    """`metadata.name=x,status.phase!=Running` over the fields a resource offers."""

    def __init__(self, text: str, offered: dict[str, Accessor]) -> None:
        self.terms: list[tuple[str, Accessor, str, bool]] = []
        for part in text.split(","):
            if not part.strip():
                continue
            match = re.match(r"^\s*([^!=]+?)\s*(==|=|!=)\s*(.*?)\s*$", part)
            if match is None:
                raise bad_request(f"invalid field selector: {part!r}; can't understand it")
            if match[1] not in offered:
                raise bad_request(f"field label not supported: {match[1]}")
            self.terms.append((match[1], offered[match[1]], match[3], match[2] != "!="))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, obj: dict[str, Any]) -> bool:
        return all((read(obj) == wanted) == equal for _, read, wanted, equal in self.terms)

    def required_name(self) -> str | None:
        """The one name that can match, when the selector names it."""
        return next((wanted for key, _, wanted, equal in self.terms if key == "metadata.name" and equal), None)


def field_reader(path: str) -> Accessor:
    """Reads a dotted path as the text a field selector compares; absent is ""."""
    steps = path.split(".")

    def read(obj: dict[str, Any]) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    return read


def matches_label_selector(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """A LabelSelector object (matchLabels, matchExpressions) against labels; None matches nothing."""
    if selector is None:
        return False
    words = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    requirements = [Requirement(k, "in", frozenset([v])) for k, v in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or []:
        values = frozenset(term.get("values") or [])
        requirements.append(Requirement(term.get("key", ""), words.get(term.get("operator", ""), "in"), values))
    return all(requirement.holds(labels) for requirement in requirements)
