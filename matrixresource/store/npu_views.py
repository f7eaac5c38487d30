"""Views of the NPUs of a node, derived from the node's row."""

from __future__ import annotations

from matrixresource.contract.nodes import NpuView
from matrixresource.nodes.fault_levels import unreported_health, worst_health, worst_level
from matrixresource.nodes.fault_rules import die_views, dies_of, faults_of
from matrixresource.store.tables import NodeRow
from matrixresource.topology import SupernodeSpec


def npu_views(node: NodeRow, spec: SupernodeSpec) -> list[NpuView]:
    """One view per NPU; a fault on a die is also the NPU's. `spec`: the spec of the node's supernode."""
    faults, views = faults_of(node), []
    for index in range(node.npus):
        name = node.node_name.npu(index)
        own = [fault for fault in faults if dies_of(fault.component) & dies_of(f"npu{index}")]
        levels = [fault.level for fault in own]
        views.append(
            NpuView(
                **node.common_fields() | {"name": name, "conditions": []},
                node=node.name,
                cabinet=node.node_name.cabinet,
                health=worst_health(levels) if node.agent != "Lost" else unreported_health(worst_health(levels)),
                level=worst_level(levels),
                dies=die_views(index, own, spec.npu.dies),
                allocation=node.holder if node.role == "member" else None,
                faults=own,
            )
        )
    return views
