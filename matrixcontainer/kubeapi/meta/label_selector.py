"""Parser of label selectors such as `app=web,tier in (a, b),!old`; a malformed one raises 400."""

import re
from dataclasses import dataclass

from matrixcontainer.kubeapi.meta.errors import bad_request, format_value
from matrixcontainer.kubeapi.meta.qualified_names import label_value_errors, qualified_name_errors

WORD = r"[^\s=!(),<>]+"
REQUIREMENT = re.compile(
    rf"""\s*(?: !\s*(?P<absent>{WORD})
        | (?P<key>{WORD}) (?: \s*(?P<operator>==|=|!=|<|>)\s*(?P<value>(?:{WORD})?)
            | \s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\) )? )\s*(?P<end>,|\Z)""",
    re.VERBOSE,
)
OPERATORS = {"in": "in", "notin": "notin", "=": "in", "==": "in", "!=": "notin", "<": "<", ">": ">"}
INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Requirement:
    """One condition on the labels of an object."""

    key: str
    operator: str  # in, notin, exists, absent, <, >
    values: frozenset[str] = frozenset()

    def matches(self, labels: dict[str, str]) -> bool:
        if self.operator == "in":
            return labels.get(self.key) in self.values if self.key in labels else False
        if self.operator == "notin":
            return labels.get(self.key) not in self.values
        if self.operator in "<>":
            return self._matches_bound(labels.get(self.key, ""))
        return (self.key in labels) == (self.operator == "exists")

    def _matches_bound(self, text: str) -> bool:
        """Compare as integers; False if either is not one."""
        bound_text = next(iter(self.values), "")
        if not (INTEGER.fullmatch(text) and INTEGER.fullmatch(bound_text)):
            return False
        bound = int(bound_text)
        return int(text) < bound if self.operator == "<" else int(text) > bound


def parse_requirements(text: str) -> list[Requirement]:
    """Parse a selector to requirements, in order. Raises ApiError 400 if it is malformed."""
    requirements: list[Requirement] = []
    position, more = 0, bool(text.strip())
    while more:
        match = REQUIREMENT.match(text, position)
        if match is None:
            rest = format_value(text[position:][:80])
            expected = "a=b, a!=b, a in (b, c), a notin (b), a, !a, a<1 or a>1, with commas between them"
            raise bad_request(f"unable to parse requirement: found {rest}, expected: {expected}")
        requirements.append(_parse_requirement(match))
        position, more = match.end(), match["end"] == ","
    return requirements


def _parse_requirement(match: re.Match[str]) -> Requirement:
    key = match["absent"] or match["key"]
    operator = match["operator"] or match["set"]
    if errors := qualified_name_errors(key):
        raise bad_request(
            f"unable to parse requirement: <nil>: Invalid value: {format_value(key)}: {'; '.join(errors)}"
        )
    if operator is None:
        return Requirement(key, "absent" if match["absent"] else "exists")
    values = [match["value"]] if match["operator"] else [word.strip() for word in match["values"].split(",")]
    for index, value in enumerate(sorted(set(values))):
        errors, path = label_value_errors(value), f"values[{index}][{key}]"
        if operator in "<>" and not INTEGER.fullmatch(value):
            errors, path = ["for 'Gt', 'Lt' operators, the value must be an integer"], f"values[{index}]"
        if errors:
            message = f"{path}: Invalid value: {format_value(value)}: {'; '.join(errors)}"
            raise bad_request(f"unable to parse requirement: {message}")
    return Requirement(key, OPERATORS[operator], frozenset(values))
