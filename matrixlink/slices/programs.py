"""Programs: what each agent is to hold for a slice, and the rows that request it, one per slice and node."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.persistence.table_cache import mapping_of
from matrixlink.routing.routing import NodeRoutes, Routes, Stripe
from matrixlink.store.tables import ProgramRow, SliceRow


def program_bodies(row: SliceRow, routes: Routes, npus: int) -> dict[str, dict[str, Any]]:
    """By member, the part that does not depend on the generation: key, class, rates, peers and routes. `npus`: of a
    node."""
    common = {
        "plane": row.plane,
        "instance": row.instance,
        "isolation": row.isolation,
        "isolation_key": row.isolation_key,
        "qos_class": row.qos_class,
        "weight": row.weight,
        "floor_gbps": row.floor_gbps * npus,
        "security_rules": row.security_rules or [],
        "ceiling_gbps": None if row.ceiling_gbps is None else row.ceiling_gbps * npus,
    }
    return {
        node: common | {"peers": [peer for peer in row.members if peer != node]} | routes_body(routes.nodes[node])
        for node in row.members
    }


def routes_body(routes: NodeRoutes) -> dict[str, Any]:
    """A node's routes in the form of a program. Programs share what they have in common; read-only."""
    return {
        "stripes": _stripes(routes.stripes),
        "detours": {name: _stripes(stripes) for name, stripes in sorted(routes.detours.items())},
    }


@lru_cache(maxsize=4096)
def _stripes(stripes: tuple[Stripe, ...]) -> list[dict[str, Any]]:
    return [asdict(stripe) | {"spread": list(stripe.spread)} for stripe in stripes]


def request_programs(
    session: Session, row: SliceRow, bodies: dict[str, dict[str, Any]], current: list[ProgramRow]
) -> None:
    """Give every member its program in the slice's generation, and have former members clear theirs."""
    by_node = {program.node: program for program in current}
    for node, body in bodies.items():
        program = by_node.pop(node, None)
        if program is None:
            name = f"{row.name}.{node}"
            program = mapping_of(ProgramRow).made(
                name=name, slice=row.name, node=node, project=row.project, action="program", body=body
            )
            session.add(program)
        program.action, program.body = "program", body
        program.generation, program.state, program.message = row.generation, "Pending", ""
    for program in by_node.values():
        request_clear(program, row.generation)


def request_clear(program: ProgramRow, generation: int) -> None:
    program.action, program.generation, program.message = "clear", generation, ""
    if program.state != "Cleared":
        program.state = "Clearing"
