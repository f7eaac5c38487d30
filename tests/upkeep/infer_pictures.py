"""Pictures of CloudMatrix-Infer's README: the pools as laid out on the paper's 256 NPUs, a table of smaller and larger
instances, and the states of a request and of a deployment."""

from __future__ import annotations

from infer_workload.engine.request import REQUEST_STATES
from infer_workload.layout.deployment import Deployment, lay_out
from infer_workload.serving.states import DEPLOYMENT_STATES
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import load_model
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from tests.upkeep.state_pictures import picture as state_picture

SIZES = (2, 4, 8, 18, 32, 48)


def laid_out(nodes: int) -> Deployment:
    fabric = Fabric.healthy(f"sn0-c{at // 4:02d}-n{at % 4}" for at in range(nodes))
    return lay_out(fabric, load_model(), load_calibration())


def pools_picture(nodes: int = 32) -> str:
    """One letter a node, a line a cabinet: D decode, a digit the prefill instance it belongs to."""
    pools = laid_out(nodes).pools
    letters = dict.fromkeys(pools.decode, "D")
    for number, instance in enumerate(pools.prefill, 1):
        letters |= dict.fromkeys(instance, str(number % 10))
    lines = ["```", f"{nodes} nodes, {nodes * NPUS_PER_NODE} NPUs; every node's CPU memory is in the caching pool", ""]
    for start in range(0, nodes, 4):
        names = sorted(letters)[start : start + 4]
        lines.append(f"  {names[0].rsplit('-', 1)[0]}  " + "  ".join(letters[name] for name in names))
    return "\n".join([*lines, "", "  D decode   1-9 prefill instance of that number", "```"]) + "\n"


def sizes_table() -> str:
    """Layouts by size of the instance."""
    lines = [
        "| nodes | prefill | decode | experts a die | redundant copies | KV tokens a die |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for nodes in SIZES:
        current = laid_out(nodes)
        layout, pools = current.decode_layout, current.pools
        prefill = f"{len(pools.prefill)} x {len(pools.prefill[0]) * NPUS_PER_NODE} NPUs"
        decode = f"{len(pools.decode) * NPUS_PER_NODE} NPUs, EP{layout.dies}"
        redundant = layout.redundant(current.model.routed_experts)
        lines.append(
            f"| {nodes} | {prefill} | {decode} | {layout.experts_per_die} | {redundant} "
            f"| {current.kv_tokens_per_die:,} |"
        )
    return "\n".join(lines) + "\n"


def request_states() -> str:
    return state_picture(REQUEST_STATES)


def deployment_states() -> str:
    return state_picture(DEPLOYMENT_STATES)
