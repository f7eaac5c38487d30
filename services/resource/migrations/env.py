from matrixresource.allocations import quotas  # noqa: F401
from matrixresource.store import (  # noqa: F401  (their tables)
    agent_leases,
    defragmentations,
    fault_history,
    maintenance_domains,
    node_inventories,
    port_observations,
    reservations,
    topology_versions,
)
from matrixresource.store.tables import Base
from services.chassis.migrating import run

run(Base.metadata)
