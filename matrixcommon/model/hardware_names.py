"""Names of the hardware, typed and parsed once.

Every name says where the part is, is a legal DNS label (so a node's name can be used in Kubernetes as it is), and sorts
in physical order: `sn0-c03-n2-npu5-die1` is die 1 of NPU 5 of node 2 in cabinet 3 of supernode 0. A name is a `str`, so
it goes through JSON, SQL and logs unchanged; construction refuses invalid names.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Self

from pydantic_core import core_schema

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.validation import pattern_of

SUPERNODE_PATTERN = r"sn(?P<supernode>\d+)"
CABINET_PATTERN = SUPERNODE_PATTERN + r"-c(?P<cabinet>\d{2,3})"
NODE_PATTERN = CABINET_PATTERN + r"-n(?P<node>\d)"

RESOURCE_NAME = re.compile(
    pattern_of(
        r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        "a name of 1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends",
    )
)
"""A caller's name for a resource: a DNS label, as Kubernetes requires (RFC 1123)."""

NPUS_PER_NODE = 8
"""CloudMatrix384 paper (arXiv 2506.12708): eight Ascend 910C packages a node, two dies each."""


class HardwareName(str):
    """A name that matches the pattern of its kind. Raises InvalidField if it does not."""

    kind: ClassVar[str] = "hardware"
    pattern: ClassVar[re.Pattern[str]] = re.compile(SUPERNODE_PATTERN)
    example: ClassVar[str] = "sn0"
    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if type(text) is cls:  # checked when it was created
            return text
        if not isinstance(text, str) or not cls.pattern.fullmatch(text):
            raise InvalidField(f"{text!r} is not the name of a {cls.kind}; expected one like {cls.example!r}")
        return super().__new__(cls, text)

    def part(self, group: str) -> int:
        """The number in the named part, e.g. `part("cabinet")`."""
        match = self.pattern.fullmatch(self)
        assert match is not None
        return int(match.group(group))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls._checked, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def _checked(cls, text: str) -> Self:
        try:
            return cls(text)
        except InvalidField as wrong:
            raise ValueError(str(wrong)) from wrong


class SupernodeName(HardwareName):
    kind = "supernode"
    __slots__ = ()


SUPERNODE = re.compile(r"sn(0|[1-9]\d{0,2})")
"""Without leading zeros, so that each number has one spelling; the limit is far above any real use."""


def validate_supernode_name(name: str) -> str:
    """Return the name if a new supernode may have it. Raises InvalidField."""
    if not SUPERNODE.fullmatch(name):
        raise InvalidField(f"{name[:80]!r} is not the name of a supernode; use sn0 to sn999", field="name")
    return name


class CabinetName(HardwareName):
    kind = "cabinet"
    pattern = re.compile(CABINET_PATTERN)
    example = "sn0-c03"
    __slots__ = ()

    @property
    def supernode(self) -> SupernodeName:
        return SupernodeName(self.split("-")[0])


class NodeName(HardwareName):
    kind = "node"
    pattern = re.compile(NODE_PATTERN)
    example = "sn0-c03-n2"
    __slots__ = ()

    @property
    def supernode(self) -> SupernodeName:
        return SupernodeName(self.split("-")[0])

    @property
    def cabinet(self) -> CabinetName:
        return CabinetName(self.rsplit("-", 1)[0])

    def npu(self, index: int) -> NpuName:
        return NpuName(f"{self}-npu{index}")


class NpuName(HardwareName):
    kind = "NPU"
    pattern = re.compile(NODE_PATTERN + r"-npu(?P<npu>\d)")
    example = "sn0-c03-n2-npu5"
    __slots__ = ()

    @property
    def node(self) -> NodeName:
        return NodeName(self.rsplit("-", 1)[0])


class DieName(HardwareName):
    kind = "die"
    pattern = re.compile(NODE_PATTERN + r"-npu(?P<npu>\d)-die(?P<die>\d)")
    example = "sn0-c03-n2-npu5-die1"
    __slots__ = ()

    @property
    def npu(self) -> NpuName:
        return NpuName(self.rsplit("-", 1)[0])


class SwitchName(HardwareName):
    """A switch chip of the UB plane (L1 or L2) or a leaf of the RDMA plane: the switches that nodes' ports lead to."""

    kind = "switch"
    pattern = re.compile(rf"{NODE_PATTERN}-l1p\d|sn\d+-l2p\d-k\d{{2}}|sn\d+-c\d{{2,3}}-leaf\d")
    example = "sn0-l2p4-k11"
    __slots__ = ()


def validate_resource_name(text: str, field: str = "name") -> str:
    """Return the name or key if it is valid for a resource. Raises InvalidField with `field` otherwise."""
    project, slash, name = text.rpartition("/")
    if not RESOURCE_NAME.fullmatch(name) or (slash and not RESOURCE_NAME.fullmatch(project)):
        raise InvalidField(
            f"{text[:80]!r} is not a valid name: use 1 to 63 lower-case letters, digits and '-', "
            "starting and ending with a letter or digit",
            field=field,
        )
    return text
