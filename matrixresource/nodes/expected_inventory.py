"""What a node must consist of according to the supernode's spec, and how a reported inventory differs.

Parts are named `npu5`, `npu5-die1`, `cpu3`, `dimm7`; ports `ub-p3-k11` (an L1 chip's port to an L2 chip),
`npu5-die1-p2` (a die's port to an L1 chip), `rdma-npu5-die0`, `vpc`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from matrixresource.contract.nodes import NodeInventory, NpuFound
from matrixresource.topology.spec import SupernodeSpec

DIMM_SLOTS = 32
"""A node's memory slots (BestHub's description of the node: `cloudmatrix384.yaml`, note at `node.dram_gib`)."""

NAMES_SHOWN = 4


def port_names(spec: SupernodeSpec) -> list[str]:
    """The names of a node's ports: L1 uplinks, the dies' links to L1, RDMA ports, the VPC port."""
    uplinks = [f"ub-p{p}-k{k:02d}" for p in range(spec.ub.sub_planes) for k in range(spec.ub.l2_per_sub_plane)]
    dies = [f"npu{npu}-die{die}" for npu in range(spec.node.npus) for die in range(spec.npu.dies)]
    down = [f"{die}-p{p}" for die in dies for p in range(spec.ub.sub_planes)]
    return [*uplinks, *down, *(f"rdma-{die}" for die in dies), "vpc"]


def part_names(spec: SupernodeSpec) -> list[str]:
    """Every part that can be missing from a node."""
    npus = [f"npu{npu}" for npu in range(spec.node.npus)]
    dies = [f"{npu}-die{die}" for npu in npus for die in range(spec.npu.dies)]
    cpus = [f"cpu{cpu}" for cpu in range(spec.node.cpus)]
    return [*npus, *dies, *cpus, *(f"dimm{slot}" for slot in range(DIMM_SLOTS)), *port_names(spec)]


def build_inventory(
    spec: SupernodeSpec, missing: Collection[str] = (), serial: str = "", firmware: str = ""
) -> NodeInventory:
    """The inventory of a node built to `spec` without these parts. A missing NPU or die takes its ports with it."""

    def is_present(part: str) -> bool:
        name = part.removeprefix("rdma-")
        return not any(name == gone or name.startswith(f"{gone}-") or part == gone for gone in missing)

    npus = []
    for npu in range(spec.node.npus):
        dies = [die for die in range(spec.npu.dies) if is_present(f"npu{npu}-die{die}")]
        if dies:
            numbers = [npu * spec.npu.dies + die for die in dies]
            npus.append(NpuFound(npu=npu, dies=numbers, hbm_gb=len(dies) * spec.die.hbm_gb))
    slots = sum(is_present(f"dimm{slot}") for slot in range(DIMM_SLOTS))
    return NodeInventory(
        model=spec.model,
        serial=serial,
        firmware=firmware,
        npus=npus,
        cpus=sum(is_present(f"cpu{cpu}") for cpu in range(spec.node.cpus)),
        memory_gib=spec.node.dram_gib * slots // DIMM_SLOTS,
        ports=[port for port in port_names(spec) if is_present(port)],
    )


_complete_inventory = lru_cache(maxsize=64)(build_inventory)
"""For a node with nothing missing, computed once per spec."""


def mismatches(spec: SupernodeSpec, found: NodeInventory) -> list[str]:
    """Differences from the spec, part by part, as sentences with what was expected and what was found.

    Serial number and firmware are individual to each node and not compared.
    """
    expected = _complete_inventory(spec)
    sentences = [_compare("model", expected.model, found.model), _compare_npus(expected, found)]
    present = {npu.npu: npu for npu in found.npus}
    for npu in expected.npus:
        if npu.npu in present:
            other = present[npu.npu]
            sentences.append(_compare(f"npu{npu.npu} dies", _join_names(npu.dies), _join_names(other.dies)))
            sentences.append(_compare(f"npu{npu.npu} HBM", f"{npu.hbm_gb} GB", f"{other.hbm_gb} GB"))
    sentences.append(_compare("CPUs", expected.cpus, found.cpus))
    sentences.append(_compare("memory", f"{expected.memory_gib} GiB", f"{found.memory_gib} GiB"))
    sentences.append(_compare_names("ports", expected.ports, found.ports))
    return [sentence for sentence in sentences if sentence]


def _compare(what: str, expected: object, found: object) -> str:
    return "" if expected == found else f"{what}: expected {expected}, found {found}"


def _compare_npus(expected: NodeInventory, found: NodeInventory) -> str:
    return _compare_names("NPUs", [f"npu{npu.npu}" for npu in expected.npus], [f"npu{npu.npu}" for npu in found.npus])


def _compare_names(what: str, expected: list[str], found: list[str]) -> str:
    missing, unexpected = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if not missing and not unexpected:
        return ""
    differences = [
        f"{word} {_join_names(names)}" for word, names in (("missing", missing), ("unexpected", unexpected)) if names
    ]
    return f"{what}: expected {len(expected)}, found {len(found)} ({'; '.join(differences)})"


def _join_names(names: Collection[object]) -> str:
    shown = [str(name) for name in names][:NAMES_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else "")
