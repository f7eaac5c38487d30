from matrixresource.store import agent_leases, maintenance_domains, port_observations, topology_versions  # noqa: F401  (their tables)
from matrixresource.store.tables import Base
from services.chassis.migrating import run

run(Base.metadata)
