"""Parser of label selectors such as `app=web,tier in (a, b),!old`; a malformed one raises 400."""

import re
from dataclasses import dataclass

from matrixcontainer.kubeapi.meta.errors import bad_request, shown
from matrixcontainer.kubeapi.meta.qualified_names import label_value_mistakes, qualified_mistakes

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

    def holds(self, labels: dict[str, str]) -> bool:
        if self.operator == "in":
            return labels.get(self.key) in self.values if self.key in labels else False
        if self.operator == "notin":
            return labels.get(self.key) not in self.values
        if self.operator in "<>":
            return self._in_order(labels.get(self.key, ""))
        return (self.key in labels) == (self.operator == "exists")

    def _in_order(self, text: str) -> bool:
        """Compare as integers; False if either is not one."""
        bound_text = next(iter(self.values), "")
        if not (INTEGER.fullmatch(text) and INTEGER.fullmatch(bound_text)):
            return False
        bound = int(bound_text)
        return int(text) < bound if self.operator == "<" else int(text) > bound


def read_requirements(text: str) -> list[Requirement]:
    """Parse a selector to requirements, in order. Raises ApiError 400 if it is malformed."""
    found: list[Requirement] = []
    place, more = 0, bool(text.strip())
    while more:
        match = REQUIREMENT.match(text, place)
        if match is None:
            rest = shown(text[place:][:80])
            expected = "a=b, a!=b, a in (b, c), a notin (b), a, !a, a<1 or a>1, with commas between them"
            raise bad_request(f"unable to parse requirement: found {rest}, expected: {expected}")
        found.append(_requirement(match))
        place, more = match.end(), match["end"] == ","
    return found


def _requirement(match: re.Match[str]) -> Requirement:
    key = match["absent"] or match["key"]
    operator = match["operator"] or match["set"]
    if mistakes := qualified_mistakes(key):
        raise bad_request(f"unable to parse requirement: <nil>: Invalid value: {shown(key)}: {'; '.join(mistakes)}")
    if operator is None:
        return Requirement(key, "absent" if match["absent"] else "exists")
    values = [match["value"]] if match["operator"] else [word.strip() for word in match["values"].split(",")]
    for place, value in enumerate(sorted(set(values))):
        mistakes, where = label_value_mistakes(value), f"values[{place}][{key}]"
        if operator in "<>" and not INTEGER.fullmatch(value):
            mistakes, where = ["for 'Gt', 'Lt' operators, the value must be an integer"], f"values[{place}]"
        if mistakes:
            why = f"{where}: Invalid value: {shown(value)}: {'; '.join(mistakes)}"
            raise bad_request(f"unable to parse requirement: {why}")
    return Requirement(key, OPERATORS[operator], frozenset(values))
