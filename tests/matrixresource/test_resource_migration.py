"""A database of the first version, with allocations in it, comes up in this one and they are held as they were."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, create_engine

from services.resource.main import MIGRATIONS
from tests.matrixresource.accounting import Accounts
from tests.matrixresource.machine import Machine

COMMON = {
    "project": "default",
    "labels": {},
    "generation": 1,
    "version": 1,
    "conditions": [],
    "created_at": 1.0,
    "updated_at": 1.0,
}
HELD = {"sn0-c00-n0": ("member", 0), "sn0-c00-n1": ("member", 1), "sn0-c00-n2": ("spare", None)}


def first_version(file):
    """One supernode, and an allocation of two nodes and a spare that are served."""
    engine = create_engine(f"sqlite:///{file}")
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["engine"] = engine
    command.upgrade(config, "0001")
    tables = MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:

        def put(table, **row):
            connection.execute(tables.tables[table].insert(), COMMON | row)

        put(
            "supernodes",
            name="sn0",
            state="Active",
            topology_version="v",
            cabinets=16,
            npus_per_node=8,
            cpus_per_node=4,
        )
        for number in range(48):
            name = f"sn0-c{number // 4:02d}-n{number % 4}"
            role, rank = HELD.get(name, (None, None))
            wanted = {"member": "Member", "spare": "Spare", None: "Clean"}[role]
            status = {"Member": "Active"}.get(wanted, wanted)
            holder = "old" if role else None
            node = {"supernode": "sn0", "npus": 8, "cpus": 4, "cordoned": False, "power": "On", "health": "Healthy"}
            node |= {"agent": "Connected", "epoch": 1, "status": status, "observed_generation": 2, "faults": []}
            put(
                "nodes",
                name=name,
                state="Active",
                **node,
                wanted=wanted,
                wanted_generation=2,
                holder=holder,
                role=role,
                rank=rank,
            )
            put(
                "assignments",
                name=name,
                state="Wanted",
                wanted=wanted,
                allocation=holder,
                rank=rank,
                **{"generation": 2},
            )
        packed = {"policy": "pack", "level": "cabinet", "required": True}
        size = {"nodes": 2, "spares": 1, "placement": packed, "topology_version": "v", "members": []}
        put("allocations", name="old", state="Bound", bound=True, **size)
        connection.execute(tables.tables["journal_head"].insert(), {"id": 1, "rv": 100, "floor": 0})
    engine.dispose()


def test_allocations_of_the_first_version_are_held(tmp_path):
    first_version(tmp_path / "resource.db")
    machine = Machine(tmp_path)
    machine.check()
    view = machine.held("old")
    assert {m.node: (m.role, m.rank) for m in view.members} == HELD
    assert (view.state, view.nodes, view.npus, view.spares) == ("Bound", 2, 16, 1)
    assert (view.placement.level, view.placement.required) == ("cabinet", True)
    others = machine.have("new", nodes=45)
    assert not HELD.keys() & {m.node for m in others.members}
    machine.allocator.release("new")
    machine.obey()
    assert machine.have("old", nodes=3, placement=view.placement.wire()).nodes == 3, "it grows in place as any other"
    machine.allocator.release("old")
    machine.obey()
    with machine.store.reading() as session:
        assert not Accounts(session).allocations
