"""`app=web,tier in (a, b),!old` read into requirements; what cannot be read is a 400 that says what was expected."""

import re
from dataclasses import dataclass, field

from matrixcontainer.kubeapi.meta.errors import ApiError, bad_request, shown
from matrixcontainer.kubeapi.meta.qualified_names import label_value_mistakes, qualified_mistakes

TOKEN = re.compile(r"[ \t\r\n]*(?:(!=|==|[=!(),<>])|([^ \t\r\n=!(),<>]+)|$)")
END = ""
SYMBOLS = frozenset(["!=", "==", "=", "!", "(", ")", ",", "<", ">", END])
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
        """What is no integer is in no order."""
        bound_text = next(iter(self.values), "")
        if not (INTEGER.fullmatch(text) and INTEGER.fullmatch(bound_text)):
            return False
        bound = int(bound_text)
        return int(text) < bound if self.operator == "<" else int(text) > bound


@dataclass
class Reader:
    """Reads a selector from left to right, a word or symbol at a time."""

    text: str
    words: list[str] = field(init=False)
    place: int = 0

    def __post_init__(self) -> None:
        self.words = [symbol or word for symbol, word in TOKEN.findall(self.text)]
        if not self.words or self.words[-1] != END:
            self.words.append(END)

    def requirements(self) -> list[Requirement]:
        """Raises ApiError 400 for what is no selector."""
        found: list[Requirement] = []
        while (word := self._next()) != END:
            if word in SYMBOLS and word != "!":
                raise bad_request(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except ApiError as failure:
                raise bad_request(f"unable to parse requirement: {failure.message}") from None
            word = self._take()
            if word == END:
                break
            if word != ",":
                raise bad_request(f"found '{word}', expected: ',' or 'end of string'")
            if (word := self._next()) in SYMBOLS and word != "!":
                raise bad_request(f"found '{word}', expected: identifier after ','")
        return found

    def _next(self) -> str:
        return self.words[self.place]

    def _take(self) -> str:
        self.place += 1
        return self.words[self.place - 1]

    def _requirement(self) -> Requirement:
        absent = self._next() == "!"
        if absent:
            self._take()
        key = self._identifier()
        if mistakes := qualified_mistakes(key):
            raise bad_request(f"<nil>: Invalid value: {shown(key)}: {'; '.join(mistakes)}")
        if absent or self._next() in (END, ","):
            return Requirement(key, "absent" if absent else "exists")
        if (word := self._take()) not in OPERATORS:
            raise bad_request(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
        operator = OPERATORS[word]
        values = self._set() if word in ("in", "notin") else [self._one()]
        for place, value in enumerate(sorted(set(values))):
            if operator in "<>" and not INTEGER.fullmatch(value):
                why = "for 'Gt', 'Lt' operators, the value must be an integer"
                raise bad_request(f"values[{place}]: Invalid value: {shown(value)}: {why}")
            if mistakes := label_value_mistakes(value):
                raise bad_request(f"values[{place}][{key}]: Invalid value: {shown(value)}: {'; '.join(mistakes)}")
        return Requirement(key, operator, frozenset(values))

    def _identifier(self) -> str:
        if (word := self._take()) in SYMBOLS:
            raise bad_request(f"found '{word}', expected: identifier")
        return word

    def _one(self) -> str:
        return "" if self._next() in (END, ",") else self._identifier()

    def _set(self) -> list[str]:
        """The values between brackets; nothing between two commas is the empty value."""
        if (word := self._take()) != "(":
            raise bad_request(f"found '{word}' expected: '('")
        if (word := self._next()) in SYMBOLS and word not in (",", ")"):
            raise bad_request(f"found '{word}', expected: ',', ')' or identifier")
        values = [""]
        while (word := self._take()) != ")":
            if word == ",":
                values.append("")
            elif word in SYMBOLS:
                raise bad_request(f"found '{word}', expected: ',', or identifier")
            else:
                values[-1] = word
                if (word := self._next()) not in (",", ")"):
                    raise bad_request(f"found '{word}', expected: ',' or ')'")
        return values
