"""The conditions of a slice."""

from __future__ import annotations

from matrixlink.model.protection import LEVELS, Protection
from matrixlink.store.tables import SliceRow


def set_conditions(row: SliceRow, failures: list[str], avoided: tuple[int, int], now: float) -> None:
    """Set the slice's conditions: Admitted, RoutesProgrammed, QosSatisfied, Degraded and, if requested, Protected. A
    condition keeps its transition time while its status is the same. `failures` are the agents' messages; `avoided`:
    how many of its members' ports are broken, and how many are drained or lack a cable in the graph."""
    generation = row.generation
    members, (lost, drained) = len(row.members), avoided
    done = row.programmed == members and row.program_generation == row.generation
    lines: list[tuple[str, bool, str, str]] = [
        ("Admitted", True, "FloorsBooked", f"{row.floor_gbps:g} GB/s per NPU on every link its members need"),
        (
            "RoutesProgrammed", done,
            "AllProgrammed" if done else "Failed" if failures else "Waiting",
            "; ".join(failures[:3]) or f"{row.programmed} of {members} agents acknowledged generation {generation}",
        ),
        (
            "QosSatisfied", row.kept >= 1, "FloorKept" if row.kept >= 1 else "FloorReduced",
            f"{row.floor_gbps * row.kept:.4g} of {row.floor_gbps:g} GB/s per NPU are kept",
        ),
        (
            "Degraded", bool(lost) or row.kept < 1,
            "LinksLost" if lost else "LinksDrained" if drained else "AllLinksUp",
            f"members' ports below their rate or held down after flapping: {lost}; drained or not drawn: {drained}"
            if lost or drained else "",
        ),
    ]  # fmt: skip
    if row.protected is not None:
        why = row.unprotected or f"the floor survives {LEVELS[Protection(row.protection)].sentence.lower().rstrip('.')}"
        lines.append(("Protected", row.protected, "ReserveLost" if row.unprotected else "ReserveBooked", why))
    for type, status, reason, message in lines:
        row.set_condition(type, status, reason, message, now)
