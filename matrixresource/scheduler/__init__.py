"""Where a request fits: an index of free capacity, the policies that choose from it, and who holds what.

Integers only: nodes, cabinets and supernodes are counted through, names are the caller's. `Ledger` is the way in.
`FORM` says whether these modules are the sources beside this file or what was compiled from them.
"""

from pathlib import Path

from matrixcommon.native.loader import Package, activate

# What a loss would take is asked of the topology in Python.
ALLOCATOR = Package(
    "matrixresource.scheduler",
    Path(__file__).parent,
    excluded=frozenset({"metrics.blast_radius"}),
    entry_point="ledger",
)
FORM = activate(ALLOCATOR)
