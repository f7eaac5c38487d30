"""YAML decoding from the events of LibYAML's parser: no recursion, no aliases, scalars as in Kubernetes.

PyYAML's constructors read `12:30` as a base-60 number and expand aliases, which can turn a few lines into gigabytes;
its composer recurses in C. Plain scalars are interpreted as by sigs.k8s.io/yaml, which kubectl and the API server use.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

DEPTH_MAX = 500
STR, ANY = "tag:yaml.org,2002:str", ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool")
NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?|0o[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+)")
NAMED_VALUES: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}


class Builder:
    """Builds the value from parser events; `duplicates` collects duplicate keys of mappings."""

    def __init__(self, duplicates: list[str]) -> None:
        self.value: Any = None
        self.documents = 0
        self._duplicates = duplicates
        self._open: list[tuple[Any, str | None]] = []  # open collections, and in a mapping the pending key

    def handle_event(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._put(event, None)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open.append(({} if kind is yaml.MappingStartEvent else [], None))
            if len(self._open) > DEPTH_MAX:
                raise ValueError(f"nested more than {DEPTH_MAX} levels deep")
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._put(None, self._open.pop()[0])
        elif kind is yaml.AliasEvent:
            raise ValueError("aliases are not accepted")
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                raise ValueError("a body must be one document")

    def _put(self, scalar: Any, is_container: Any) -> None:
        """Add a scalar, or a completed collection, to the enclosing collection."""
        if not self._open:
            self.value = is_container if scalar is None else value_of(scalar)
            return
        holder, key = self._open[-1]
        if isinstance(holder, list):
            holder.append(is_container if scalar is None else value_of(scalar))
        elif key is None:
            if scalar is None:
                raise ValueError("a key must be a scalar")
            key = _key(value_of(scalar))
            if key in holder:
                self._duplicates.append(key)
            self._open[-1] = (holder, key)
        else:
            holder[key] = is_container if scalar is None else value_of(scalar)
            self._open[-1] = (holder, None)


def value_of(scalar: Any) -> Any:
    """The value of a scalar; quoted ones are strings."""
    text: str = scalar.value
    if scalar.tag not in (None, "!", STR, *ANY):
        raise ValueError(f"tag {scalar.tag[:80]} is not accepted")
    if scalar.tag in ("!", STR) or (scalar.tag is None and not scalar.implicit[0]):
        return text
    if text in NAMED_VALUES:
        return NAMED_VALUES[text]
    return _number(text) if NUMBER.fullmatch(text) else text


def _key(value: Any) -> str:
    """A key's value in JSON notation: `on` is `true`, and `0x10` is `16`."""
    if value is None:
        raise ValueError("a key must not be null")
    return value if isinstance(value, str) else json.dumps(value)


def _number(text: str) -> int | float:
    plain = text.replace("_", "")
    digits = plain.lstrip("+-")
    octal = digits.isdecimal() and digits.startswith("0") and not set(digits) & {"8", "9"}
    if len(digits) < 40 and (digits.isdecimal() or digits[:2] in ("0x", "0o", "0b")):
        whole = int(plain, 8) if octal else int(plain) if digits.isdecimal() else int(plain, 0)
        return whole if -(2**63) <= whole < 2**63 else float(whole)
    value = float(plain)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"number {text[:40]} is out of range")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def read_yaml(body: bytes, duplicates: list[str]) -> Any:
    """Decode a single document. Raises ValueError if it is invalid."""
    builder = Builder(duplicates)
    try:
        for event in yaml.parse(body, Loader=yaml.CSafeLoader):
            builder.handle_event(event)
    except yaml.YAMLError as failure:
        raise ValueError(str(failure)) from failure
    return builder.value
