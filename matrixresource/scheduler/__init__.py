"""Where a request fits: an index of free capacity, the policies that choose from it, and who holds what.

Integers only: nodes, cabinets and supernodes are counted through, names are the caller's. `Ledger` is the way in.
`FORM` says whether these modules are the sources beside this file or what was compiled from them.
"""

from matrixcommon.native.loader import activate
from matrixresource.native_allocator import ALLOCATOR

FORM = activate(ALLOCATOR)
