"""What README.md shows of MatrixLink, printed from the code: `python -m matrixlink.picture` rewrites it there."""

from __future__ import annotations

import sys
from pathlib import Path

from matrixlink.fabric.planes import plane_models
from matrixlink.network_slice import SLICE_STATES
from matrixlink.qos import TERMS

BEGIN, END = "<!-- printed by python -m matrixlink.picture -->", "<!-- end of print -->"
README = Path(__file__).with_name("README.md")


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
    return "\n".join([SLICE_STATES.picture(), *planes, "", *classes, ""])


def main() -> int:
    page = README.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    README.write_text(f"{head}{BEGIN}\n{printed()}{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
