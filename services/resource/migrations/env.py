from matrixresource import domains, leases, observed_ports, topology_history  # noqa: F401  (their tables)
from matrixresource.store import Base
from services.chassis.migrating import run

run(Base.metadata)
