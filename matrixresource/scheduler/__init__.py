"""Where a request fits: an index of free capacity, the policies that choose from it, and who holds what.

Works on integers only: nodes, cabinets and supernodes are numbered, and names are opaque. `Ledger` is the entry point.
`FORM` says whether these modules run from the sources beside this file or were compiled from them.
"""

from pathlib import Path

from matrixcommon.native.loader import Package, activate

# Failure impacts are computed from the topology, in plain Python.
ALLOCATOR = Package(
    "matrixresource.scheduler",
    Path(__file__).parent,
    excluded=frozenset({"metrics.blast_radius"}),
    entry_point="ledger",
)
FORM = activate(ALLOCATOR)
