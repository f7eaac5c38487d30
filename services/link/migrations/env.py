from matrixlink.store.communicators import CommunicatorRow
from matrixlink.store.tables import Base
from services.chassis.migrating import run

assert CommunicatorRow.metadata is Base.metadata  # every table must be known before
run(Base.metadata)
