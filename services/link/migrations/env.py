from matrixlink.communicators.store import CommunicatorRow
from matrixlink.rows import Base
from services.chassis.migrating import run

assert CommunicatorRow.metadata is Base.metadata  # every table must be known before
run(Base.metadata)
