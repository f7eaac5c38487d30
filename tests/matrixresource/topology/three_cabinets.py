"""A supernode of three compute cabinets and twelve nodes, each with the NPUs, ports and switches of the published one.

What is tested on it costs a quarter of what it does on 48 nodes.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from matrixresource.machines import DEFAULT_FILE

CABINETS, NODES_OF_CABINET = 3, 4
NODES = [f"sn0-c{cabinet:02d}-n{node}" for cabinet in range(CABINETS) for node in range(NODES_OF_CABINET)]

NUMBERS: dict[str, dict[str, int]] = {
    "supernode": {
        "cabinets": 7,
        "compute_cabinets": 3,
        "nodes": 12,
        "npus": 96,
        "dies": 192,
        "cpus": 48,
        "l1_switches": 84,
        "optical_modules": 1728,
    },
    "ub": {"l2_ports": 12, "bus_device_ports": 12, "optical_links": 672, "optical_modules": 1344},
    "rdma": {"leaves_per_subnet": 3, "optical_modules": 384},
    "vpc": {"uplinks": 12},
}
"""Where it differs from the published one."""


@cache
def three_cabinets() -> Path:
    """The file of its numbers; it is there until the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="small-supernode-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    document: dict[str, Any] = yaml.safe_load(DEFAULT_FILE.read_text())
    for section, numbers in NUMBERS.items():
        for figure, number in numbers.items():
            document[section][figure]["value"] = number
    file = folder / "three_cabinets.yaml"
    file.write_text(yaml.safe_dump(document))
    return file
