"""What README.md shows of MatrixLink, printed from the code."""

from __future__ import annotations

from matrixlink.fabric.condition.planes import plane_models
from matrixlink.model.qos import TERMS
from matrixlink.model.slice_states import SLICE_STATES
from tests.upkeep.state_pictures import picture as state_picture

BEGIN, END = "<!-- generated:matrixlink -->", "<!-- /generated -->"


def printed() -> str:
    """The states of a slice, the planes and the classes, as Markdown."""
    planes = [
        "| plane | sub-planes | node, GB/s each | endpoint, GB/s each | between nodes | QoS on the wire |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {m.plane} | {m.sub_planes} | {m.uplink_gbps:g} | {m.endpoint_gbps:g} | {m.latency_us:g} us "
            f"| {m.qos_mechanism} |"
            for m in plane_models().values()
        ),
    ]
    classes = [
        "| class | weight | floor | which means |",
        "| --- | --- | --- | --- |",
        *(f"| {qos} | {terms.weight:g} | {terms.floor} | {terms.sentence} |" for qos, terms in TERMS.items()),
    ]
    return "\n".join([state_picture(SLICE_STATES), *planes, "", *classes, ""])
