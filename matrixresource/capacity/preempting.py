"""Whom a request may put out: lower priorities only, the least work lost, nobody who need not go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrixresource.capacity.wishes import Wish

if TYPE_CHECKING:
    from matrixresource.capacity.ledger import Held, Ledger


def victims(ledger: Ledger, wish: Wish, now: float) -> list[str] | None:
    """Allocations to release so that the request fits, or None when that would not help. Nothing is changed.

    They are released one after another on trial, the cheapest first, until it fits; then each that the place does not
    need is kept after all, the dearest first.
    """
    lower = [name for name, held in ledger.held.items() if held.wish.priority < wish.priority]
    lower.sort(key=lambda name: (lost(ledger.held[name], now), name))
    gone: list[str] = []
    fits = False
    for name in lower:
        ledger.give(name, ledger.held[name].place)
        gone.append(name)
        if ledger.choose(wish) is not None:
            fits = True
            break
    kept: set[str] = set()
    if fits:
        for name in reversed(gone):
            held = ledger.held[name]
            ledger.take(name, held.place, held.wish.end)
            kept.add(name)
            if ledger.choose(wish) is None:
                ledger.give(name, held.place)
                kept.discard(name)
    chosen = [name for name in gone if name not in kept]
    for name in chosen if fits else gone:
        held = ledger.held[name]
        ledger.take(name, held.place, held.wish.end)
    return chosen if fits else None


def lost(held: Held, now: float) -> float:
    """The work that an eviction throws away, in weighted NPU-seconds, counting what a start costs as a minute."""
    return (now - held.since + 60.0) * held.wish.npus * held.wish.weight
