"""What a request must not have is taken out of the index while a place is chosen for it, and put back after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from matrixresource.capacity.index import Index
from matrixresource.capacity.wishes import Wish

if TYPE_CHECKING:
    from matrixresource.capacity.ledger import Ledger


@contextmanager
def withheld(ledger: Ledger, wish: Wish) -> Iterator[None]:
    """Choose inside; take and give only what is given back again before the end."""
    with closed(ledger.index, wish.avoid):
        yield


@contextmanager
def closed(index: Index, nodes: Iterable[int]) -> Iterator[None]:
    """Nodes take nobody for a while; who holds them keeps them."""
    shut = [node for node in nodes if index.up[node]]
    for node in shut:
        index.set_up(node, False)
    try:
        yield
    finally:
        for node in shut:
            index.set_up(node, True)
