"""Label and field selectors, parsed once; a malformed one raises 400."""

import re
from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.meta.errors import bad_request
from matrixcontainer.kubeapi.meta.label_selector import Requirement, parse_requirements


class LabelSelector:
    """A selector such as `app=web,tier in (a, b),!old`; an empty one matches everything."""

    def __init__(self, text: str) -> None:
        self.requirements = parse_requirements(text)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, obj: dict[str, Any]) -> bool:
        return self.matches_labels(obj.get("metadata", {}).get("labels") or {})

    def matches_labels(self, labels: dict[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


Accessor = Callable[[dict[str, Any]], str]


TERM = re.compile(r"(?:[^,\\]|\\.|\\$)+", re.DOTALL)  # a comma ends a term unless escaped by a backslash
TERM_PARTS = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(.?)|([,=])", re.DOTALL)


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[2]:
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(match[2])}")
        if match[1] not in ("\\", ",", "="):
            raise bad_request(f"invalid field selector: invalid escape sequence: \\{match[1]}")
        return match[1]

    return ESCAPE.sub(plain, text)


class FieldSelector:
    """A selector such as `metadata.name=x,status.phase!=Running` on the fields that a resource supports."""

    def __init__(self, text: str, readers: dict[str, Accessor], standard: bool = False) -> None:
        """`standard`: a built-in kind with only the common fields, whose error message upstream words differently."""
        self.terms: list[tuple[str, Accessor, str, bool]] = []
        for part in sorted(TERM.findall(text)):
            match = TERM_PARTS.match(part)
            if match is None:
                raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
            value = _unescape(match[3])
            if match[1] not in readers:
                if standard:
                    known = 'known field selector: only "metadata.name", "metadata.namespace"'
                    raise bad_request(f'"{match[1]}" is not a {known}')
                raise bad_request(f"field label not supported: {match[1]}")
            self.terms.append((match[1], readers[match[1]], value, match[2] != "!="))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, obj: dict[str, Any]) -> bool:
        return all((read(obj) == wanted) == equal for _, read, wanted, equal in self.terms)

    def required_name(self) -> str | None:
        """The only name that can match, if the selector requires one."""
        return next((wanted for key, _, wanted, equal in self.terms if key == "metadata.name" and equal), None)


def field_reader(path: str) -> Accessor:
    """A function that reads a dotted path as text for comparison; "" if absent."""
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
    """Whether labels match a LabelSelector object (matchLabels, matchExpressions); None matches nothing."""
    if selector is None:
        return False
    requirements = [Requirement(k, "in", frozenset([v])) for k, v in (selector.get("matchLabels") or {}).items()]
    requirements += [requirement_from_term(term) for term in selector.get("matchExpressions") or []]
    return all(requirement.matches(labels) for requirement in requirements)


OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent", "Gt": ">", "Lt": "<"}


def requirement_from_term(term: dict[str, Any]) -> Requirement:
    """Convert an entry of matchExpressions, of a label selector or a node selector term."""
    values = frozenset(term.get("values") or [])
    return Requirement(term.get("key", ""), OPERATORS.get(term.get("operator", ""), "in"), values)
