from matrixcompute.store.store import Base
from services.chassis.migrating import run

run(Base.metadata)
