"""The picture at the top of README: a supernode with instances where the allocator puts them, as SVG.

Printed from decisions of the real allocator on the published machine, so it changes when they do.
"""

from __future__ import annotations

import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.matrixresource.machine import Machine

ASKED = (("deepseek-r1", 18, 1, "bright_cyan"), ("training", 12, 0, "bright_magenta"), ("batch", 3, 0, "bright_yellow"))
"""Instances: name, nodes, spares, colour."""
NPUS, MEMBER, SPARE, FREE = 8, "■", "□", "·"


def supernode_svg() -> str:
    """12 cabinets of 4 nodes of 8 NPUs, by who has them."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        cells: dict[str, tuple[str, str]] = {}
        for name, nodes, spares, colour in ASKED:
            for member in machine.reserve(name, nodes=nodes, spares=spares).members:
                cells[member.node] = (MEMBER if member.role == "member" else SPARE, colour)
        machine.database.close()
    console = Console(record=True, width=84, file=StringIO(), color_system="truecolor", legacy_windows=False)
    grid = Table.grid(padding=(0, 2))
    for row in range(0, 12, 6):
        grid.add_row(*(Text(f"c{cabinet:02d}", "bold") for cabinet in range(row, row + 6)))
        for node in range(4):
            names = (f"sn0-c{cabinet:02d}-n{node}" for cabinet in range(row, row + 6))
            marks = [cells.get(name, (FREE, "grey50")) for name in names]
            grid.add_row(*(Text(mark * NPUS, colour) for mark, colour in marks))
        grid.add_row()
    console.print(grid)
    legend = Text()
    for name, nodes, spares, colour in ASKED:
        words = f"{MEMBER} {name}: {nodes} nodes" + (f" and {SPARE} a spare" if spares else "")
        legend.append(f"{words}    ", colour)
    console.print(legend)
    return console.export_svg(title="sn0: 384 NPUs in 48 nodes in 12 cabinets", unique_id="supernode")
